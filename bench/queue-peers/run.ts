import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { quantile } from '../support/measure';
import type { Expectation } from '../support/result';
import { describeMachine, startBenchStore } from '../support/store';
import type { Answer, Order } from './peer-process';
import type { Work } from './queue-peer';
import { installRivals } from './rivals';

export interface QueuePeersBench {
  /** Only peers of these names; ours always runs. */
  readonly peers: readonly string[];
  readonly callers: readonly number[];
  readonly rounds: number;
  /** Jobs of each step one at a time; in batches ten times as many. */
  readonly jobs: number;
  readonly say: (line: string) => void;
}

export interface QueuePeersResult {
  readonly step: 'enqueue' | 'claim and complete';
  readonly perCall: number;
  readonly callers: number;
  readonly peer: string;
  /** Jobs, of the median round. */
  readonly perSecond: number;
  /** How many times as fast ours is. */
  readonly ours: number;
}

const PER_CALL = [1, 100] as const;
const OURS = 'ours';

/**
 * Puts jobs into queues and works them off, ours and those of others, in turns on one database, each in a process of its own with the same
 * Node.js. Throws when a queue has not done what it says it has.
 */
export async function runQueuePeersBench({ peers, callers, rounds, jobs, say }: QueuePeersBench): Promise<QueuePeersResult[]> {
  const { node } = await installRivals(say);
  const store = await startBenchStore({ max_connections: '300' });
  const opened: PeerProcess[] = [];
  try {
    say(await describeMachine(store.admin));
    for (const name of peers) {
      const peer = await openPeer(node, name, { url: store.url, callersMax: Math.max(...callers) });
      opened.push(peer);
      say(`${name}: ${peer.description}`);
    }
    const works = callers.flatMap((each) =>
      PER_CALL.map((perCall): Work => ({ callers: each, perCall, jobs: perCall === 1 ? jobs : jobs * 10 })),
    );
    const found = new Map<string, number[]>();
    for (let round = 0; round <= rounds; round += 1) {
      await store.admin.query('VACUUM ANALYZE'); // as autovacuum does within a minute: no plan is left of the time when the tables were empty
      for (const whole of works) {
        // The round before the first warms plans and caches up and is not counted.
        const work = round === 0 ? { ...whole, jobs: Math.ceil(whole.jobs / 5) } : whole;
        for (const { name, order } of opened) {
          for (const step of ['enqueue', 'workOff'] as const) {
            const perSecond = (work.jobs * 1_000) / (await order({ step, work }));
            say(
              `${round === 0 ? 'warm-up' : `round ${round} of ${rounds}`}: ${name}, ${step}, ${work.perCall} a call, ${work.callers} callers: ${perSecond.toFixed(0)}/s`,
            );
            if (round > 0) push(found, keyOf(step, work, name), perSecond);
          }
        }
      }
    }
    return resultsOf(found, works, peers);
  } finally {
    for (const peer of opened) await peer.close();
    await store.stop();
  }
}

interface PeerProcess {
  readonly name: string;
  readonly description: string;
  readonly order: (order: Order) => Promise<number>;
  readonly close: () => Promise<void>;
}

async function openPeer(node: string, name: string, { url, callersMax }: { url: string; callersMax: number }): Promise<PeerProcess> {
  const child = fork(path.join(__dirname, 'peer-process.js'), [name, url, String(callersMax)], { execPath: node });
  const first = await answerOf(name, child);
  return {
    name,
    description: 'description' in first ? first.description : '',
    order: async (order) => {
      child.send(order);
      const answer = await answerOf(name, child);
      return 'ms' in answer ? answer.ms : Number.NaN;
    },
    close: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const gone = once(child, 'exit');
      if (child.connected) child.send({ step: 'close' } satisfies Order);
      await gone;
    },
  };
}

async function answerOf(name: string, child: ChildProcess): Promise<Answer> {
  const abort = new AbortController();
  const { signal } = abort;
  try {
    const [answer] = (await Promise.race([
      once(child, 'message', { signal }),
      once(child, 'exit', { signal }).then(() => [{ error: 'the process has ended' }]),
    ])) as [Answer];
    if ('error' in answer) throw new Error(`${name}: ${answer.error}`);
    return answer;
  } finally {
    abort.abort();
  }
}

const keyOf = (step: Exclude<Order['step'], 'close'>, { perCall, callers }: Work, peer: string): string =>
  [step, perCall, callers, peer].join('/');

function push(found: Map<string, number[]>, key: string, value: number): void {
  found.set(key, [...(found.get(key) ?? []), value]);
}

function resultsOf(found: ReadonlyMap<string, number[]>, works: readonly Work[], peers: readonly string[]): QueuePeersResult[] {
  return (['enqueue', 'workOff'] as const).flatMap((step) =>
    works.flatMap((work) => {
      const rateOf = (peer: string): number => quantile(found.get(keyOf(step, work, peer)) ?? [], 0.5);
      return peers.map((peer) => ({
        step: step === 'enqueue' ? ('enqueue' as const) : ('claim and complete' as const),
        perCall: work.perCall,
        callers: work.callers,
        peer,
        perSecond: Number(rateOf(peer).toFixed(0)),
        ours: Number((rateOf(OURS) / rateOf(peer)).toFixed(2)),
      }));
    }),
  );
}

/** What the project promises: ahead of each. */
export function queuePeersExpectations(results: readonly QueuePeersResult[]): Expectation[] {
  return results
    .filter(({ peer }) => !peer.startsWith(OURS))
    .map(({ step, perCall, callers, peer, ours }) => ({
      what: `${step}, ${perCall} a call, ${callers === 1 ? 'one caller' : `${callers} callers`}: against ${peer}`,
      found: ours,
      atLeast: 1,
    }));
}
