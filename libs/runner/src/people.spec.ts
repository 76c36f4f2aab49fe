import { ProblemError, type Client } from '@runplane/client';
import { digestOf, type Approval, type JsonValue } from '@runplane/contracts';
import { People } from './people';

// What the work asks, on a client that answers from a list: the waits, their ends, and the check of what comes back.

interface Call {
  name: string;
  id: string;
}

function setUp(outcomes: Approval['outcome'][], { digest, refuse }: { digest?: string; refuse?: string } = {}) {
  const stop = new AbortController();
  const calls: Call[] = [];
  const answer = (approvalId: string, asked?: JsonValue): Approval =>
    ({ approvalId, sessionId: 's', outcome: outcomes.shift() ?? 'pending', argumentsDigest: digest ?? digestOf(asked ?? {}) }) as Approval;
  const client = {
    requestRunApproval: async (_: string, { approvalId = '', arguments: args }: { approvalId?: string; arguments?: JsonValue }) => {
      calls.push({ name: 'ask', id: approvalId });
      if (refuse !== undefined)
        throw new ProblemError(
          { type: 'x', title: refuse, status: 409, code: refuse, failureKind: 'cancelled', retryable: false },
          undefined,
        );
      return { approval: answer(approvalId, args), replayed: false };
    },
    getRunApproval: async (_: string, approvalId: string, { signal }: { signal: AbortSignal }) => {
      signal.throwIfAborted();
      calls.push({ name: 'wait', id: approvalId });
      if (outcomes.length === 0)
        return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
      return answer(approvalId);
    },
  } as unknown as Client;
  const people = new People({
    client,
    runId: 'r',
    epoch: 1,
    signal: stop.signal,
    write: (call) => call({ signal: stop.signal, retry: { attemptsMax: 1, elapsedMsMax: 1 } }),
    lookAtRun: () => Promise.resolve(stop.abort(new Error('cancel requested'))),
  });
  return { people, stop, calls };
}

const call = { toolName: 'rm', arguments: {} };

test('one question, as many waits as it takes, under one id', async () => {
  const { people, calls } = setUp(['pending', 'pending', 'rejected']);

  expect(await people.approve(call)).toMatchObject({ outcome: 'rejected' });

  expect(calls.map(({ name }) => name)).toEqual(['ask', 'wait', 'wait']);
  expect(new Set(calls.map(({ id }) => id)).size).toBe(1);
});

test('an approval for other arguments is none', async () => {
  const { people } = setUp(['approved'], { digest: digestOf({ other: 1 }) });
  await expect(people.approve(call)).rejects.toMatchObject({ code: 'approval_mismatch' });
});

test('arguments that would have to be repaired are refused before anybody is asked', async () => {
  const { people, calls } = setUp(['approved']);
  await expect(people.approve({ ...call, arguments: 'a\u0000' })).rejects.toMatchObject({ code: 'invalid_json' });
  expect(calls).toEqual([]);
});

test('work that has to stop stops waiting, with its reason, and asks no more', async () => {
  const { people, stop, calls } = setUp(['pending']);
  const asked = people.approve(call);
  stop.abort(new Error('enough'));

  await expect(asked).rejects.toThrow('enough');
  await expect(people.approve(call)).rejects.toThrow('enough');
  expect(calls.filter(({ name }) => name === 'ask')).toHaveLength(1);
});

test('a run that is being cancelled refuses the question: the work learns why before its error can read as a failure', async () => {
  const { people } = setUp([], { refuse: 'run_cancelling' });
  await expect(people.approve(call)).rejects.toThrow('cancel requested');
});
