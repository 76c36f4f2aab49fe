import type { CoalescerStats, Db } from '@runplane/database';
import { getRelayStatus, type Relay, type SinkStats } from '@runplane/outbox';
import type { FastifyInstance } from 'fastify';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Loop } from '../maintenance/run-every';
import type { Waiters } from './waiters';

// No label has an unbounded set of values: routes by their pattern, loops by their name; tenants and ids never.

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

export interface MetricsOf {
  readonly db: Db;
  readonly waiters: Waiters;
  readonly loops: () => readonly Loop[];
  readonly relays: () => readonly Relay[];
  /** Also the process's own: memory, event loop, garbage collection. */
  readonly processMetrics: boolean;
}

/** Measures every request of `app` and reads pool, hub, waiters and loops when asked. */
export function measure(app: FastifyInstance, { db, waiters, loops, relays, processMetrics }: MetricsOf): Registry {
  const registry = new Registry();
  const registers = [registry];
  if (processMetrics) collectDefaultMetrics({ register: registry });

  const requests = new Counter({
    name: 'runplane_http_requests_total',
    help: 'Requests answered',
    labelNames: ['method', 'route', 'status'],
    registers,
  });
  const seconds = new Histogram({
    name: 'runplane_http_request_seconds',
    help: 'Time to answer, long polls and streams apart',
    labelNames: ['route'],
    buckets: SECONDS,
    registers,
  });
  const appendSeconds = new Histogram({
    name: 'runplane_append_seconds',
    help: 'Time to append a batch of run events',
    buckets: SECONDS,
    registers,
  });
  app.addHook('onResponse', async (request, reply) => {
    const route = request.routeOptions.url ?? 'unknown';
    requests.inc({ method: request.method, route, status: reply.statusCode });
    const { measured } = request.routeOptions.config;
    if (measured === 'append') appendSeconds.observe(reply.elapsedTime / 1000);
    if (measured !== 'waits') seconds.observe({ route }, reply.elapsedTime / 1000);
  });

  const gauge = (name: string, help: string, read: () => number): void => {
    const made = new Gauge({
      name,
      help,
      registers,
      collect: () => {
        made.set(read());
      },
    });
  };
  gauge('runplane_waiters', 'Long polls and streams that wait now', () => waiters.count);
  gauge('runplane_pool_connections', 'Connections of the pool', () => db.pool.totalCount);
  gauge('runplane_pool_idle', 'Connections of the pool that nobody uses', () => db.pool.idleCount);
  gauge('runplane_pool_queue', 'Callers that wait for a connection', () => db.pool.waitingCount);
  gauge('runplane_hub_connected', 'Whether the listener is connected', () => Number(db.hub.stats.connected));
  gauge('runplane_hub_subscriptions', 'Subscriptions to changes', () => db.hub.stats.subscriptions);
  gauge('runplane_hub_reconnects', 'Reconnects of the listener since start', () => db.hub.stats.reconnects);
  gauge('runplane_hub_notifications_sent', 'Hints sent since start', () => db.hub.stats.notificationsSent);
  gauge('runplane_hub_notifications_received', 'Hints received since start', () => db.hub.stats.notificationsReceived);
  gauge(
    'runplane_hub_failures',
    'Hints and safety polls that failed since start',
    () => db.hub.stats.notifyFailures + db.hub.stats.pollFailures,
  );
  measureCoalescers(db, registers);
  measureLoops(loops, registers);
  measureRelays(db, relays, registers);
  return registry;
}

/** By kind of call: append, heartbeat, ack; there once the first such call has come. */
function measureCoalescers(db: Db, registers: Registry[]): void {
  const ofKinds = (name: string, help: string, read: (stats: CoalescerStats) => number): void => {
    const made = new Gauge({
      name,
      help,
      labelNames: ['kind'],
      registers,
      collect: () => {
        for (const [kind, { stats }] of db.coalescers) made.set({ kind }, read(stats));
      },
    });
  };
  ofKinds('runplane_coalesced_calls', 'Calls since start, alone or with others', (stats) => stats.calls);
  ofKinds('runplane_coalesced_together', 'Calls that went with others since start', (stats) => stats.together);
  ofKinds('runplane_coalesced_batches', 'Statements that they shared since start', (stats) => stats.batches);
  ofKinds('runplane_coalesced_busy', 'Calls put back since start because somebody else held their rows', (stats) => stats.busy);
  ofKinds('runplane_coalesced_refused', 'Calls for which there was no room since start', (stats) => stats.refused);
  ofKinds('runplane_coalesced_queue', 'Calls that wait for a batch now', (stats) => stats.waiting);
  ofKinds('runplane_coalesced_queue_bytes', 'Bytes of the calls that wait', (stats) => stats.waitingBytes);
}

function measureLoops(loops: () => readonly Loop[], registers: Registry[]): void {
  const ofLoops = (name: string, help: string, read: (loop: Loop) => number): void => {
    const made = new Gauge({
      name,
      help,
      labelNames: ['loop'],
      registers,
      collect: () => {
        for (const loop of loops()) made.set({ loop: loop.name }, read(loop));
      },
    });
  };
  ofLoops('runplane_loop_passes', 'Passes of a loop since start', (loop) => loop.stats.passes);
  ofLoops('runplane_loop_failures', 'Failed passes since start', (loop) => loop.stats.failures);
  ofLoops('runplane_loop_changed', 'What the passes have changed since start', (loop) => loop.stats.changed);
  ofLoops('runplane_loop_failed', 'What the passes could not do, and will try again, since start', (loop) => loop.stats.failed);
  ofLoops('runplane_loop_beat_age_seconds', 'Time since a pass last ended', (loop) => loop.stats.sinceBeatMs / 1000);
  const found = new Gauge({
    name: 'runplane_loop_found',
    help: 'What the last pass of a loop has found: sessions with stale views, and rebuilds that wait, fail or were given up',
    labelNames: ['loop', 'what'],
    registers,
    collect: () => {
      for (const loop of loops())
        for (const [what, count] of Object.entries(loop.found?.() ?? {})) found.set({ loop: loop.name, what }, count);
    },
  });
}

/** By sink: what this process has sent, and how the sink stands over all processes, read at each scrape in one statement. */
function measureRelays(db: Db, relays: () => readonly Relay[], registers: Registry[]): void {
  const ofRelays = (name: string, help: string, read: (stats: SinkStats) => number): void => {
    const made = new Gauge({
      name,
      help,
      labelNames: ['sink'],
      registers,
      collect: () => {
        for (const { stats } of relays()) for (const each of stats) made.set({ sink: each.sink }, read(each));
      },
    });
  };
  ofRelays('runplane_relay_shards', 'Shards of a sink that this process holds', (stats) => stats.shards);
  ofRelays('runplane_relay_sent', 'Events sent since start', (stats) => stats.sent);
  ofRelays('runplane_relay_refused', 'Events refused by the sink since start', (stats) => stats.refused);
  ofRelays('runplane_relay_failures', 'Passes ended by a failure of the sink since start', (stats) => stats.failures);
  ofRelays('runplane_relay_lost', 'Shards lost in the middle of a pass since start', (stats) => stats.lost);
  ofRelays('runplane_relay_beat_age_seconds', 'Time since the relay last gave a sign of life', (stats) => stats.sinceBeatMs / 1000);
  const state = new Gauge({
    name: 'runplane_sink_state',
    help: 'A sink over all processes: backlog (counted to a bound), lag in seconds, keys that are retried or parked, since when the first is parked, shards held or failing',
    labelNames: ['sink', 'what'],
    registers,
    collect: async () => {
      const { sinks } = await getRelayStatus(db).catch(() => ({ sinks: [] })); // the rest of the metrics is worth having without a database
      state.reset();
      for (const {
        sink,
        backlogCount: backlog,
        lagMs,
        retryingCount: retrying,
        parkedCount: parked,
        oldestParkedAt,
        shardsHeld: held,
        shardsFailing: failing,
      } of sinks)
        for (const [what, value] of Object.entries({
          backlog,
          lag_seconds: lagMs / 1000,
          retrying,
          parked,
          parked_seconds: oldestParkedAt === null ? 0 : Math.max(Date.now() - Date.parse(oldestParkedAt), 0) / 1000,
          held,
          failing,
        }))
          state.set({ sink, what }, value);
    },
  });
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** `waits`: the time to answer is the caller's choice; `append`: measured by itself as well. */
    measured?: 'waits' | 'append';
  }
}
