import { isDeepStrictEqual } from 'node:util';
import { isFinalRun, type RunState } from '@runplane/contracts';
import { findViolations, openClient, type RawQueries } from '@runplane/database/testing';
import { until } from '../support/until';
import type { Followed, Told } from './load';
import type { Stage } from './stage';

/** For the last processes and the readiness of an API to come to rest. */
const QUIET_MS = 20_000;

interface RunRow {
  readonly id: string;
  readonly status: RunState;
}
interface EventRow {
  readonly run_id: string;
  readonly seq: number;
  readonly id: string;
  readonly type: string;
  readonly payload: unknown;
}
type Logs = ReadonlyMap<string, readonly EventRow[]>;

/** Everything that should not be so, once the load has come to its end: a line each, with the ids to look for. */
export async function findFaults(stage: Stage, told: Told, quietMs = QUIET_MS): Promise<string[]> {
  const client = await openClient(stage.databaseUrl);
  try {
    const { rows: runs } = (await client.query('SELECT id, status::text FROM runplane.runs')) as { rows: RunRow[] };
    const logs = await readLogs(client);
    return [
      ...told.wrong,
      ...stage.apis.flatMap((api) => api.accidents),
      ...(await findViolations(client)).map(({ invariant, detail }) => `${invariant}: ${detail}`),
      ...runs.filter(({ status }) => !isFinalRun(status)).map(({ id, status }) => `run ${id} is ${status} and nobody works on it`),
      ...statesNotKept(told, runs),
      ...(await turnsNotKept(told, client)),
      ...(await commandsNotKept(told, client)),
      ...appendsNotKept(told, logs),
      ...told.followed.flatMap((followed) => brokenStream(followed, logs.get(followed.runId) ?? [])),
      ...(await brokenFeed(told, logs, quietMs)),
      ...(await heldSessions(client)),
      ...(await programsPerClaim(logs)),
      ...(await processesLeft(stage, quietMs)),
      ...(await unreadyApis(stage, quietMs)),
      ...(await surprisesInLogs(stage)),
    ];
  } finally {
    await client.end();
  }
}

/** What happened to a run, for the report of a failure. */
export async function storyOf(stage: Stage, runId: string): Promise<string> {
  const rows = await stage.query<{ line: string }>(
    `SELECT format('%s %s %s', to_char(created_at, 'HH24:MI:SS.MS'), seq, CASE type WHEN 'backend_status' THEN payload::text ELSE type || ' ' || left(payload::text, 200) END) AS line
       FROM runplane.run_events WHERE run_id = '${runId}' ORDER BY seq`,
  );
  const facts = await stage.query<{ line: string }>(
    `SELECT 'run ' || row_to_json(r)::text AS line FROM (SELECT status, attempts, max_attempts, on_runner_lost, claim_epoch, claimed_by, claim_deadline_at, cancel_deadline_at, finished_at
         FROM runplane.runs WHERE id = '${runId}') r
     UNION ALL SELECT 'lease ' || row_to_json(k)::text FROM runplane.run_leases k WHERE run_id = '${runId}'
     UNION ALL SELECT 'command ' || row_to_json(c)::text FROM (SELECT id, type, state, finished_at FROM runplane.commands WHERE run_id = '${runId}') c
     UNION ALL SELECT 'intent ' || row_to_json(i)::text FROM (SELECT id, state, attempts, owner, epoch, ready_at, expires_at, last_error FROM runplane.dispatch_intents WHERE run_id = '${runId}') i`,
  );
  return [`the story of ${runId}:`, ...rows.map(({ line }) => `  ${line}`), ...facts.map(({ line }) => `  ${line}`)].join('\n');
}

async function readLogs(on: RawQueries): Promise<Logs> {
  const { rows } = (await on.query('SELECT run_id, seq::int, id, type, payload FROM runplane.run_events ORDER BY run_id, seq')) as {
    rows: EventRow[];
  };
  const logs = new Map<string, EventRow[]>();
  for (const row of rows) logs.set(row.run_id, [...(logs.get(row.run_id) ?? []), row]);
  return logs;
}

/** A run that was said to exist exists, and one that was said to have ended has ended so. */
function statesNotKept({ states }: Told, runs: readonly RunRow[]): string[] {
  const statusOf = new Map(runs.map(({ id, status }) => [id, status]));
  return states.flatMap(({ by, runId, status }) => {
    const now = statusOf.get(runId);
    if (now === undefined) return [`run ${runId} was acknowledged by ${by} and does not exist`];
    return isFinalRun(status) && now !== status ? [`run ${runId} was ${status}, as ${by} was told, and is ${now} now`] : [];
  });
}

async function turnsNotKept({ turns }: Told, on: RawQueries): Promise<string[]> {
  const { rows } = (await on.query(
    `SELECT session_id, idempotency_key, run_id, id FROM runplane.commands WHERE type = 'turn' AND session_id IS NOT NULL`,
  )) as { rows: { session_id: string; idempotency_key: string; run_id: string; id: string }[] };
  const byKey = new Map(rows.map((row) => [`${row.session_id} ${row.idempotency_key}`, row]));
  const lost = turns.filter(({ sessionId, key, runId, commandId }) => {
    const row = byKey.get(`${sessionId} ${key}`);
    return row?.run_id !== runId || row.id !== commandId;
  });
  return [
    ...lost.map(({ key, runId }) => `the turn ${key} was acknowledged as run ${runId}, and is not there`),
    ...(rows.length === turns.length ? [] : [`${turns.length} turns were asked for, ${rows.length} are there`]),
  ];
}

async function commandsNotKept({ commands, cancels }: Told, on: RawQueries): Promise<string[]> {
  const idsOf = async (table: string): Promise<Set<string>> => {
    const { rows } = await on.query(`SELECT id FROM runplane.${table}`);
    return new Set((rows as { id: string }[]).map(({ id }) => id));
  };
  const commandIds = await idsOf('commands');
  const requestIds = await idsOf('cancel_requests');
  return [
    ...commands
      .filter(({ commandId }) => !commandIds.has(commandId))
      .map(({ runId, commandId }) => `command ${commandId} of run ${runId} was acknowledged, and is not there`),
    ...cancels
      .filter(({ requestId }) => !requestIds.has(requestId))
      .map(({ runId, requestId }) => `cancel ${requestId} of run ${runId} was acknowledged, and is not there`),
  ];
}

/** Each batch that was acknowledged stands at the sequences that the answer named, and nowhere else. */
function appendsNotKept({ appends }: Told, logs: Logs): string[] {
  return appends.flatMap(({ runId, events, answer }) => {
    const stored = (logs.get(runId) ?? []).slice(answer.firstSeq - 1, answer.lastSeq);
    const same =
      stored.length === events.length &&
      stored.every(({ id, type, payload }, i) => {
        const { final: _default, ...sent } = payload as Record<string, unknown>;
        return id === answer.eventIds[i] && type === events[i]?.type && isDeepStrictEqual(sent, events[i].payload);
      });
    const copies = (logs.get(runId) ?? []).filter(
      ({ payload }) => (payload as { text?: unknown }).text === events[0]?.payload['text'],
    ).length;
    return same && copies === 1
      ? []
      : [
          `batch ${answer.firstSeq}–${answer.lastSeq} of run ${runId} was acknowledged, and is stored as ${copies} × ${JSON.stringify(stored)}`,
        ];
  });
}

/** A follower saw every event once and in order, with the stored content, up to the end, and was told the end. */
function brokenStream({ runId, events, end }: Followed, log: readonly EventRow[]): string[] {
  const terminal = log.find(({ type }) => type === 'terminal_status');
  if (end === undefined || terminal === undefined)
    return [`a follower of run ${runId} has not seen its end, after event ${events.at(-1)?.seq ?? 0}`];
  if (end.terminalSeq !== terminal.seq || end.status !== (terminal.payload as { terminalStatus: string }).terminalStatus)
    return [
      `a follower of run ${runId} was told the end ${JSON.stringify(end)}, it is ${terminal.seq}: ${JSON.stringify(terminal.payload)}`,
    ];
  const expected = log.slice(0, Math.max(terminal.seq, events.length));
  const at = expected.findIndex(({ id, type, payload }, i) => {
    const seen = events[i];
    return seen === undefined || seen.seq !== i + 1 || seen.id !== id || seen.type !== type || !isDeepStrictEqual(seen.payload, payload);
  });
  return at === -1
    ? []
    : [`a follower of run ${runId} saw as event ${at + 1}: ${JSON.stringify(events[at])}, stored is ${JSON.stringify(expected[at])}`];
}

/** The feed's reader gets every event of every run once, in order (FEED-1); it may still be on its way. */
async function brokenFeed({ feed }: Told, logs: Logs, quietMs: number): Promise<string[]> {
  const missing = () => [...logs].filter(([runId, log]) => (feed.get(runId)?.length ?? 0) < log.length);
  await until('the feed is complete', () => missing().length === 0, quietMs).catch(() => undefined);
  return [...logs.keys()].flatMap((runId) => {
    const seen = feed.get(runId) ?? [];
    const wrong = seen.findIndex((sequence, i) => sequence !== i + 1);
    if (wrong !== -1) return [`the feed gave event ${seen[wrong]} of run ${runId} where ${wrong + 1} was due`];
    return seen.length < (logs.get(runId)?.length ?? 0)
      ? [`the feed ended at event ${seen.length} of run ${runId}, which has ${logs.get(runId)?.length}`]
      : [];
  });
}

async function heldSessions(on: RawQueries): Promise<string[]> {
  const { rows } = await on.query(
    `SELECT session_id, active_run_id FROM runplane.sessions WHERE active_run_id IS NOT NULL OR execution_state = 'running'`,
  );
  return (rows as { session_id: string; active_run_id: string }[]).map(
    (row) => `session ${row.session_id} is still held by run ${row.active_run_id}`,
  );
}

/** A claim starts its program at most once. */
async function programsPerClaim(logs: Logs): Promise<string[]> {
  return [...logs].flatMap(([runId, log]) => {
    const count = (phase: string) =>
      log.filter(({ type, payload }) => type === 'backend_status' && (payload as { phase: string }).phase === phase).length;
    const [started, claimed] = [count('process-started'), count('run-claimed')];
    return started > claimed ? [`run ${runId} was claimed ${claimed} times and started its program ${started} times`] : [];
  });
}

async function processesLeft(stage: Stage, quietMs: number): Promise<string[]> {
  const left = async () => [...(await stage.runners()), ...(await stage.programs())];
  await until('no process is left', async () => (await left()).length === 0, quietMs, 100).catch(() => undefined);
  return (await left()).map(({ pid, command }) => `process ${pid} is left: ${command}`);
}

async function unreadyApis(stage: Stage, quietMs: number): Promise<string[]> {
  const found = await Promise.all(
    stage.apis.map((api) =>
      api.untilReady(true, quietMs).then(
        () => undefined,
        (error: Error) => error.message,
      ),
    ),
  );
  return found.filter((message) => message !== undefined);
}

/** Errors in a log that an outage does not explain: an answer 500, a background pass or a stream that met a bug. */
async function surprisesInLogs(stage: Stage): Promise<string[]> {
  const lines = (await Promise.all(stage.apis.map((api) => api.log()))).join('\n').split('\n');
  const surprises = lines.filter((line) => /"level":[56]0/.test(line) && !OUTAGE.test(line));
  return [...new Set(surprises.map((line) => `in the log of an API: ${line.slice(0, 1_500)}`))].slice(0, 10);
}

const OUTAGE = /"code":"(database_unavailable|outcome_unknown|pool_timeout|lock_timeout|transaction_conflict|shutting_down)"/;
