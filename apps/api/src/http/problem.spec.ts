import { LeaseLost, PayloadTooLarge, RunClaimed, SessionBusy, ShuttingDown, WrongIsolation } from '@runplane/contracts';
import { toProblem } from './problem';

const context = { requestId: 'req_1', instance: '/v1/runs' };

describe('a problem', () => {
  test('has the fields of RFC 9457, the code, the original’s failure kind and the request id', () => {
    const { problem } = toProblem(new LeaseLost('The claim of epoch 1 is over.', { runId: 'r', epoch: 1, currentEpoch: 2 }), context);

    expect(problem).toEqual({
      type: 'urn:runplane:error:lease_lost',
      title: 'Lease lost',
      status: 409,
      detail: 'The claim of epoch 1 is over.',
      instance: '/v1/runs',
      code: 'lease_lost',
      failureKind: 'runner-lease-conflict',
      retryable: false,
      data: { runId: 'r', epoch: 1, currentEpoch: 2 },
      requestId: 'req_1',
    });
  });

  test('says when to come back, where that is known', () => {
    const busy = { sessionId: 's', runId: 'r', commandId: 'c', holder: null, leaseRemainingMs: 9_000 };

    expect(toProblem(new ShuttingDown(), context).retryAfterSeconds).toBe(1);
    expect(toProblem(new SessionBusy('busy', { ...busy, staleInMs: 2_001 }), context).retryAfterSeconds).toBe(3);
    expect(toProblem(new SessionBusy('busy', { ...busy, staleInMs: null }), context).retryAfterSeconds).toBeUndefined();
    expect(toProblem(new RunClaimed('held', { runId: 'r', claimedBy: 'x', leaseRemainingMs: 0 }), context).retryAfterSeconds).toBe(1);
    expect(toProblem(new PayloadTooLarge('large', { bytesMax: 1 }), context).retryAfterSeconds).toBeUndefined();
  });

  test('of anything unexpected says nothing about it', () => {
    for (const error of [new Error('password=hunter2'), new WrongIsolation('x', { isolation: 'serializable' }), 'text', undefined]) {
      const { problem } = toProblem(error, context);

      expect(problem.status).toBe(500);
      expect(JSON.stringify(problem)).not.toMatch(/hunter2|serializable/);
    }
  });

  test('never repeats what a parser quotes from the body', () => {
    const error = Object.assign(new SyntaxError('Unexpected token s in "secret-body"'), { statusCode: 400 });

    const { problem } = toProblem(error, context);

    expect(problem.status).toBe(400);
    expect(JSON.stringify(problem)).not.toContain('secret-body');
  });
});
