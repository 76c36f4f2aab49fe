import { isDomainError, type NewRunEvent } from '@runplane/contracts';
import { openDb, type Db } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { appendRunEvents, claimRun, createRuns } from '@runplane/runs';
import { aClaimedTurn, aRunner, endLease, makeTenants, TENANT } from '@runplane/runs/testing';
import fc from 'fast-check';
import { search, SEARCH_TIMEOUT_MS } from '../support/properties';

// Whatever calls arrive together: each has the answer, and each run the log, that the same calls one after the other would have given.

const RUNS = 4;
const NUMBERS = ['none', 'next', 'again', 'gap'] as const;

interface PlannedCall {
  readonly run: number;
  readonly epoch: 'current' | 'old' | 'not yet';
  readonly number: (typeof NUMBERS)[number];
  readonly events: number;
  readonly command: 'none' | 'own' | 'unknown';
}
interface Round {
  readonly calls: readonly PlannedCall[];
  /** What happens to one run after the calls. */
  readonly then: { readonly run: number; readonly what: 'nothing' | 'finish' | 'claim' | 'cancel' };
}
const often = <T>(usual: T, ...rare: T[]) =>
  fc.oneof({ weight: 6, arbitrary: fc.constant(usual) }, ...rare.map((value) => fc.constant(value)));
const run = fc.integer({ min: 0, max: RUNS - 1 });
const rounds: fc.Arbitrary<Round[]> = fc.array(
  fc.record({
    calls: fc.array(
      fc.record({
        run,
        epoch: often<PlannedCall['epoch']>('current', 'old', 'not yet'),
        number: fc.constantFrom(...NUMBERS),
        events: fc.integer({ min: 1, max: 3 }),
        command: often<PlannedCall['command']>('none', 'own', 'unknown'),
      }),
      { minLength: 1, maxLength: 12 },
    ),
    then: fc.record({ run, what: fc.constantFrom('nothing', 'finish', 'claim', 'cancel') }),
  }),
  { minLength: 1, maxLength: 3 },
);

let single: Db;
afterAll(() => single.close()); // before the database goes
const t = useDatabase();
beforeAll(async () => {
  await makeTenants(t.db);
  single = await openDb({ url: t.url, coalesce: false });
});

interface State {
  readonly runId: string;
  readonly commandId: string;
  epoch: number;
}
const stage = (): Promise<State[]> =>
  Promise.all(
    Array.from({ length: RUNS }, async () => {
      const { run: made, command, epoch } = await aClaimedTurn(single);
      return { runId: made.id, commandId: command.id, epoch };
    }),
  );

/** The planned calls with their numbers; `used`: how far each run's producer has come, by plan. */
function numbered(calls: readonly PlannedCall[], used: number[]): (PlannedCall & { sequence: number | undefined; text: string })[] {
  return calls.map((call, i) => {
    const last = used[call.run] ?? 0;
    const text = `${call.number} ${i}`;
    if (call.number === 'none') return { ...call, sequence: undefined, text };
    if (call.number === 'again') return { ...call, sequence: Math.max(last, 1), text };
    if (call.number === 'gap') return { ...call, sequence: last + 3, text };
    used[call.run] = last + 1;
    return { ...call, sequence: last + 1, text: `next ${last + 1}` };
  });
}

function send(db: Db, state: State, call: ReturnType<typeof numbered>[number]): Promise<unknown> {
  const commandId = { none: undefined, own: state.commandId, unknown: 'cmd_unknown' }[call.command];
  const events = Array.from({ length: call.events }, (_, i): NewRunEvent => ({
    type: 'assistant_message',
    payload: { text: `${call.text} ${i}`, ...(commandId === undefined ? {} : { commandId }) },
  }));
  const epoch = state.epoch + { current: 0, old: -1, 'not yet': 1 }[call.epoch];
  return appendRunEvents(db, {
    tenantId: TENANT,
    runId: state.runId,
    epoch: Math.max(epoch, 1),
    events,
    ...(call.sequence === undefined ? {} : { producerSequence: call.sequence }),
  }).then(
    ({ eventIds, replayed }) => ({ count: eventIds.length, replayed }),
    (error: unknown) => {
      if (!isDomainError(error)) throw error;
      return { code: error.code, data: { ...error.data, runId: '' } };
    },
  );
}

async function happen(state: State, what: Round['then']['what']): Promise<void> {
  const { runId, epoch } = state;
  const key = { tenantId: TENANT, runId };
  const refused = (error: unknown): void => {
    if (!isDomainError(error)) throw error;
  };
  if (what === 'finish')
    await createRuns(single)
      .finishRun({ ...key, epoch, outcome: { terminalStatus: 'completed' } })
      .catch(refused);
  if (what === 'cancel')
    await createRuns(single)
      .cancelRun({ ...key, reason: 'enough' })
      .catch(refused);
  if (what === 'claim') {
    await endLease(single, runId);
    await claimRun(single, { ...key, runnerId: aRunner() }).then((claimed) => (state.epoch = claimed.epoch), refused);
  }
}

/** What the runner's calls have left: its events in order, the counters, and which refusals are on record. A record's own place may differ. */
async function left({ runId, commandId }: State): Promise<unknown> {
  const { rows } = await t.db.pool.query<{ events: string | null; records: unknown; run: unknown }>(
    `SELECT (SELECT json_agg(json_build_array(payload, command_id, producer_epoch, producer_seq) ORDER BY seq) FROM runplane.run_events
               WHERE run_id = $1 AND type = 'assistant_message')::text AS events,
            (SELECT json_agg(DISTINCT payload ->> 'phase' || ' ' || (payload ->> 'epoch')) FROM runplane.run_events
               WHERE run_id = $1 AND payload ->> 'phase' IN ('late-write-rejected', 'stale-writer-refused')) AS records,
            (SELECT json_build_array(status, claim_epoch, last_producer_seq) FROM runplane.runs WHERE id = $1) AS run`,
    [runId],
  );
  const [found] = rows;
  return { ...found, events: found?.events?.replaceAll(commandId, 'own') };
}

test(
  'calls that arrive together are answered and stored as one after the other',
  () =>
    search(
      fc.asyncProperty(rounds, async (plan) => {
        const [together, inTurn] = [await stage(), await stage()];
        const used = Array.from({ length: RUNS }, () => 0);
        for (const { calls, then } of plan) {
          const planned = numbered(calls, used);
          const found = await Promise.all(planned.map((call) => send(t.db, together[call.run] as State, call)));
          const expected: unknown[] = [];
          for (const call of planned) expected.push(await send(single, inTurn[call.run] as State, call));
          expect(found).toEqual(expected);
          for (const states of [together, inTurn]) await happen(states[then.run] as State, then.what);
          if (then.what === 'claim') used[then.run] = 0;
        }
        for (const [i, state] of together.entries()) expect(await left(state)).toEqual(await left(inTurn[i] as State));
      }),
    ),
  SEARCH_TIMEOUT_MS,
);
