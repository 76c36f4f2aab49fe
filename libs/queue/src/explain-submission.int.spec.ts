import { SUBMISSION_ATTEMPTS_MAX, SUBMISSION_CAUSES } from '@runplane/contracts';
import { sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { createRuns } from '@runplane/runs';
import { aClaimedTurn, makeTenants, newRun, TENANT } from '@runplane/runs/testing';
import { acceptSubmission, endSubmission, type SubmissionKey } from '@runplane/sessions';
import type { ExplainedSubmission } from './explain-submission.sql';
import { explainSubmission, settleSubmissions } from './index';
import { explainSubmissionFacts } from './submission-explanation';
import { aClaimedSubmission, aKind, aSubmission, passSubmissionTime } from './testing/submissions';

// Each cause is made, and its sentence read.

// The clock stands still: "1 s ago" is so however long a machine takes to ask.
const t = useDatabase({ settings: { 'runplane.fake_now': new Date().toISOString() } });
const tenantId = TENANT;
const keyOf = ({ sessionId, operationId }: { sessionId: string; operationId: string }): SubmissionKey => ({
  tenantId,
  sessionId,
  operationId,
});
const waited = ({ sessionId }: SubmissionKey, seconds: number) =>
  t.db.sql.query(
    sql`UPDATE runplane.submission_heads SET ready_at = runplane.app_now() - ${seconds}::int * interval '1 second' WHERE session_id = ${sessionId}::text`,
  );
const tried = ({ sessionId }: SubmissionKey, attempts: number) =>
  t.db.sql.query(
    sql`UPDATE runplane.submission_heads SET attempts = ${attempts}::int, last_error = 'no luck' WHERE session_id = ${sessionId}::text`,
  );
async function released(error?: string, delayMs?: number): Promise<SubmissionKey> {
  const claimed = await aClaimedSubmission(t.db);
  const { sessionId, operationId, epoch } = claimed;
  await settleSubmissions(t.db, { tenantId, settlements: [{ sessionId, operationId, epoch, outcome: 'released', error, delayMs }] });
  return keyOf(claimed);
}
const ended = async (state: 'completed' | 'failed', runId?: string): Promise<SubmissionKey> => {
  const key = await aSubmission(t.db);
  await endSubmission(t.db, { ...key, end: { state, ...(state === 'failed' ? { error: 'broken' } : {}) }, runId });
  return key;
};
async function aQueuedTurn(): Promise<SubmissionKey & { runId: string }> {
  const { run } = await aClaimedTurn(t.db);
  const sessionId = run.sessionId ?? '';
  const turn = { run: newRun(), payload: {}, busyPolicy: 'enqueue' as const };
  await createRuns(t.db).admitTurn({ tenantId, sessionId, idempotencyKey: 'next', turn });
  return { tenantId, sessionId, operationId: 'next', runId: run.id };
}

beforeAll(() => makeTenants(t.db));

const CASES: [cause: string, make: () => Promise<SubmissionKey>, sentence: RegExp, isMoving?: boolean][] = [
  ['ended', () => ended('completed'), /^The submission is completed; nothing will move it\.$/],
  ['ended', () => ended('completed', 'run_7'), /^The submission is completed as run run_7; nothing/],
  ['can-be-requeued', () => ended('failed'), /^The submission has failed \(broken\); only somebody who queues it again moves it\.$/, false],
  [
    'behind-others',
    async () => {
      const { sessionId, operationId } = await aClaimedSubmission(t.db);
      await aSubmission(t.db, { sessionId, operationId: 'between' });
      expect(await explainSubmission(t.db, { tenantId, sessionId, operationId: 'between' })).toMatchObject({
        sentence: expect.stringContaining(`1 submission of its session comes before it, first ${operationId}: The worker`),
      });
      return aSubmission(t.db, { sessionId });
    },
    /^2 submissions of its session come before it, first op-\S+: The worker worker-\S+ holds the submission for another \d+ s \(try 1 of 10\)\.$/,
  ],
  [
    'worked-on',
    async () => keyOf(await aClaimedSubmission(t.db)),
    /^The worker worker-\S+ holds the submission for another \d+ s \(try 1 of 10\)\.$/,
  ],
  [
    'worker-lost',
    async () => {
      const key = keyOf(await aClaimedSubmission(t.db));
      await passSubmissionTime(t.db, key);
      return key;
    },
    /^The worker worker-\S+ stopped renewing its claim 1 s ago; the next worker that asks gets it\.$/,
    false,
  ],
  [
    'worker-lost',
    async () => {
      const key = keyOf(await aClaimedSubmission(t.db));
      await passSubmissionTime(t.db, key);
      await tried(key, SUBMISSION_ATTEMPTS_MAX);
      return key;
    },
    /ago; the next sweep fails it: that was the last try\.$/,
    false,
  ],
  [
    'tries-used-up',
    async () => {
      const key = await aSubmission(t.db);
      await tried(key, SUBMISSION_ATTEMPTS_MAX);
      return key;
    },
    /^The last of 10 tries has failed \(no luck\); the next sweep fails the submission\.$/,
    false,
  ],
  ['waits-for-turn', aQueuedTurn, /^The session has an open turn, of run run_\S+; the queued one is called when that ends\.$/],
  ['backs-off', () => released('no luck'), /^Try 1 of 10 failed \(no luck\); it comes again in \d+ m?s\.$/],
  ['waits-for-its-time', () => released(undefined, 60_000), /^The submission was put off: it can be claimed in 60 s\.$/],
  ['waits-for-worker', () => aSubmission(t.db, { kind: 'mail' }), /^The submission waits for a worker that claims kind mail\.$/],
  [
    'waits-for-worker',
    async () => {
      const key = await aSubmission(t.db);
      await endSubmission(t.db, { ...key, end: { state: 'completed' } });
      await acceptSubmission(t.db, { ...key, operationId: 'turn', submission: { kind: 'turn' } });
      return { ...key, operationId: 'turn' };
    },
    /^The session is free; the next look at queued turns starts it\.$/,
  ],
  [
    'waits-for-worker',
    async () => {
      const kind = aKind();
      await aClaimedSubmission(t.db, { kind }); // somebody works on this kind
      const key = await aSubmission(t.db, { kind });
      await waited(key, 90);
      return key;
    },
    /^The submission waits for a worker that claims kind kind-\S+\.$/,
  ],
  [
    'no-worker',
    async () => {
      const key = await aSubmission(t.db, { kind: aKind() });
      await waited(key, 90);
      return key;
    },
    /^The submission has been ready for 90 s, and nobody works on any of its kind: no worker claims submissions of kind kind-\S+\.$/,
    false,
  ],
  [
    'no-worker',
    async () => {
      const key = await aQueuedTurn();
      await createRuns(t.db).cancelRun({ tenantId, runId: key.runId, immediate: true });
      await waited(key, 300);
      return key;
    },
    /^The submission has been ready for 5 min, and nobody works on any of its kind: no process starts queued turns\.$/,
    false,
  ],
];

test.each(CASES)('why a submission is where it is: %s', async (cause, make, sentence, isMoving = true) => {
  const key = await make();
  const why = await explainSubmission(t.db, key);
  expect(why).toMatchObject({
    sessionId: key.sessionId,
    operationId: key.operationId,
    cause,
    isMoving,
    sentence: expect.stringMatching(sentence),
  });
  expect(why.run === null).toBe(cause !== 'waits-for-turn');
});

test('every cause is made by a test', () => {
  expect(new Set(CASES.map(([cause]) => cause))).toEqual(new Set(SUBMISSION_CAUSES));
});

test('a state that no rule knows is an error, and what is not there is said in the words of a read', async () => {
  const facts = { state: 'pending', headOperationId: 'a', headState: 'waiting', kind: 'k' } as ExplainedSubmission;
  for (const over of [{ state: 'asleep' }, { headState: 'asleep' }, { headOperationId: null }, { headState: null }])
    expect(() => explainSubmissionFacts('a', { ...facts, ...over } as ExplainedSubmission)).toThrow();
  const { sessionId } = await aSubmission(t.db);
  await expect(explainSubmission(t.db, { tenantId, sessionId, operationId: 'none' })).rejects.toMatchObject({
    code: 'submission_not_found',
  });
  await expect(explainSubmission(t.db, { tenantId, sessionId: 'none', operationId: 'none' })).rejects.toMatchObject({
    code: 'session_not_found',
  });
});
