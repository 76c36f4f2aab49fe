// Turns that wait in the queues of their sessions, what starts them, and claims of callers who have gone.
const turns = (name) => ({ file: 'libs/queue/src/queued-turns.int.spec.ts', name });
const admission = (name) => ({ file: 'libs/runs/src/admit-steer.int.spec.ts', name });
const claims = (name) => ({ file: 'tests/contract/http-claims.spec.ts', name });
const inOrder = 'waits behind the open one and those before it, in the order of their calls; a repeat is a repeat';

export const queuedTurnGuards = [
  {
    name: 'a queued turn does not overtake in a free session',
    file: 'libs/runs/src/admit-turn.ts',
    text: 'if (enqueues && !queue.isQueueEmpty)',
    replacement: 'if (enqueues && !queue.isQueueEmpty && active !== undefined)',
    test: admission(inOrder),
  },
  {
    name: 'the key of a queued turn is that of its content',
    file: 'libs/runs/src/queued-turn.ts',
    text: 'if (stored === undefined || contentHash(stored).hash !== contentHash(turn.payload).hash) {',
    replacement: 'if (stored === undefined) {',
    test: admission(inOrder),
  },
  {
    name: 'the end of a turn calls the next one',
    file: 'libs/sessions/src/session.sql.ts',
    text: 'if (ended?.turnWaits === true) await callQueuedTurn(tx, { tenantId, sessionId });',
    replacement: '',
    test: admission(inOrder),
  },
  {
    name: 'a process that stops does not wait for a database that is away',
    file: 'libs/queue/src/start-queued-turns.ts',
    text: ' || signal?.aborted === true',
    replacement: '',
    test: turns('that a process which stops has claimed while the database is away does not keep it from stopping'),
  },
  {
    name: 'a busy session uses up no tries',
    file: 'libs/queue/src/start-queued-turns.ts',
    text: 'await releaseSubmission(tx, { ...key, operationId, epoch });',
    replacement: "await releaseSubmission(tx, { ...key, operationId, epoch, error: 'busy' });",
    test: turns('of a session that is busy waits without its tries being used up, and is called by the end of the open turn'),
  },
  {
    name: 'ends of other turns do not use up the tries of a queued one',
    file: 'libs/sessions/src/queued-turn.sql.ts',
    text: 'runplane.app_now() + ${calledInMs} * interval',
    replacement: 'runplane.app_now() + 0 * interval',
    test: turns('that goes wrong is called by ends of other turns no sooner than its tries allow'),
  },
  {
    name: 'a queued turn that can never be admitted fails',
    file: 'libs/queue/src/start-decisions.ts',
    text: "return error.retryable ? 'failed' : 'refused';",
    replacement: "return 'failed';",
    test: turns('that can never be admitted fails with the reason, and the next one goes on'),
  },
  {
    name: 'a database that is away uses up no tries of a queued turn',
    file: 'libs/queue/src/start-decisions.ts',
    text: "if (INFRASTRUCTURE.has(error.code)) return 'put-off';",
    replacement: '',
    test: turns('whose start the database cuts off comes again without the try: it was not looked at'),
  },
  {
    name: 'what was claimed for a caller who has gone is given back',
    file: 'apps/api/src/http/claims.ts',
    text: 'if (raw.destroyed) handBack();',
    replacement: 'if (raw.destroyed) void 0;',
    test: claims('a task that was claimed for a caller who has gone meanwhile is given back at once, and the try does not count'),
  },
];
