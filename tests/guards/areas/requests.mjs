// What is asked of people: who may ask, how it ends, what an approval allows.
import { RUNS, SESSIONS, asking, askingFolds, askingSchemas, askingSessions, races } from '../places.mjs';

const guards = `${SESSIONS}/projections/request-guards.ts`;
const input = `${SESSIONS}/projections/user-input.ts`;
const schema = `${SESSIONS}/input-schema.ts`;
const people = `${RUNS}/ask-people.ts`;
const turn = `${RUNS}/session-turn.ts`;

export const requestsGuards = [
  {
    name: 'a runner asks under the epoch of its claim',
    file: turn,
    text: "if (writer.kind === 'lease-lost') throw leaseLost({ runId, epoch, currentEpoch: run.claimEpoch });",
    replacement: '',
    test: races('requests', 'a runner that was replaced asks nobody'),
  },
  {
    name: 'an ended run asks nobody',
    file: turn,
    text: "if (writer.kind === 'closed') throw runClosed(run);",
    replacement: '',
    test: races('requests', 'one that comes behind is refused'),
  },
  {
    name: 'a run that is being cancelled asks nobody',
    file: `${RUNS}/session-turn.ts`,
    text: "if (status === 'cancelling') throw",
    replacement: "if (status === 'failed') throw",
    test: asking('asks nobody'),
  },
  {
    name: 'only the run of the open turn asks',
    file: turn,
    text: 'if (session?.activeRunId !== runId) {',
    replacement: 'if (session === undefined) {',
    test: asking('only the run that has the open turn'),
  },
  {
    name: 'a run sees what it has asked for itself, by approval',
    file: people,
    text: '(await getApproval(db, key)).runId === runId',
    replacement: '(await getApproval(db, key)).runId !== null',
    test: asking('only the run that has the open turn'),
  },
  {
    name: 'the end of a run ends what it asks',
    file: `${RUNS}/close-run.ts`,
    text: '[updateThread, closeToolCalls, closeRequests, closeCommands]',
    replacement: '[updateThread, closeToolCalls, closeCommands]',
    test: races('requests', 'one that comes behind is refused'),
  },
  {
    name: 'the end of a turn ends what it asks',
    file: `${RUNS}/close-command.ts`,
    text: 'await cancelOpenRequests(tx, { tenantId, sessionId, runId: run.id, commandId: command.id, reason });',
    replacement: '',
    test: asking('ends with its turn'),
  },
  {
    name: 'what is to be ended is looked for again behind the lock',
    file: `${SESSIONS}/cancel-open-requests.ts`,
    text: 'const open = await listOpenRequests(tx, scope); // a decision may have come before the lock',
    replacement: 'const open = before;',
    test: races('requests', 'an approval that comes before the cancel'),
  },
  {
    name: 'a decision locks the head before its time is judged',
    file: `${SESSIONS}/append-events.ts`,
    text: 'if (wanted.events.some(isDecision)) return inTransaction(at, (tx) => appendLocked(tx, wanted));',
    replacement: '',
    test: races('requests', 'waits for the log before its time is judged'),
  },
  {
    name: 'an approval is decided once',
    file: guards,
    text: "if (state !== 'pending') {",
    replacement: 'if (resolution !== undefined && isSameResolution(wanted, resolution)) {',
    test: askingFolds('keeps the first decision'),
  },
  {
    name: 'an approval is decided at the revision that was looked at',
    file: guards,
    text: 'if (expectedRevision !== revision) {',
    replacement: 'if (revision > 0) {',
    test: askingFolds('is decided at the revision that was looked at'),
  },
  {
    name: 'an approval is not decided behind its end',
    file: guards,
    text: 'if (isDecision && !isLive(expiresInMs))',
    replacement: 'if (isDecision && expiresInMs === Infinity)',
    test: askingFolds('cannot be decided at its end'),
  },
  {
    name: 'an answer fits the schema of its question',
    file: input,
    text: "requireFittingValue(schema, fieldOf(event.data, 'value') ?? null);",
    replacement: 'void schema;',
    test: askingFolds('an answer fits its schema'),
  },
  {
    name: 'an answer is not refused because the machine was busy for a moment',
    file: `${SESSIONS}/input-schema.ts`,
    text: "if (outcome === 'stopped') outcome = underClock(() => check(value));",
    replacement: '',
    test: askingSchemas('an answer that was stopped once'),
  },
  {
    name: 'the number of open approvals is bounded',
    file: guards,
    text: 'if (open >= OPEN_REQUESTS_MAX) {',
    replacement: 'if (open < 0) {',
    test: askingFolds('is one of a bounded number'),
  },
  {
    name: 'a schema does not lead out of itself',
    file: schema,
    text: "if (typeof reference !== 'string' || !/^#(\\/|$)/.test(reference)) throw invalid('a $ref leads out of it');",
    replacement: "if (typeof reference !== 'string') return;",
    test: askingSchemas('refers to another document'),
  },
  {
    name: 'what depends on a name is a part of its schema',
    file: `${SESSIONS}/input-schema.ts`,
    text: ", 'dependentSchemas', 'dependencies']",
    replacement: ", 'dependentSchemas']",
    test: askingSchemas('that refers to itself from what depends'),
  },
  {
    name: 'a schema names no part of itself, wherever it stands',
    file: `${SESSIONS}/input-schema.ts`,
    text: 'refuseNames(given);',
    replacement: '',
    test: askingSchemas('that names a part that nothing refers to'),
  },
  {
    name: 'a few lines of schema do not stand for millions of checks',
    file: schema,
    text: 'if (this.parts > INPUT_SCHEMA_PARTS_MAX)',
    replacement: 'if (this.parts < 0)',
    test: askingSchemas('stands for too many checks'),
  },
  {
    name: 'a call that changed is not the approved one',
    file: 'libs/contracts/src/approved-call.ts',
    text: 'if (argumentsDigest !== digestOf(callArguments)) {',
    replacement: 'if (argumentsDigest === null) {',
    test: askingSessions('allows its call and no other'),
  },
  {
    name: 'an approval is looked for in its own tenant',
    file: `${SESSIONS}/requests.sql.ts`,
    text: 'WHERE a.tenant_id = ${tenantId}::text AND a.session_id = ${sessionId}::text AND a.approval_id = ${approvalId}::text',
    replacement: "WHERE ${tenantId}::text <> '' AND a.session_id = ${sessionId}::text AND a.approval_id = ${approvalId}::text",
    test: askingSessions('nobody else names what is not there'),
  },
  {
    name: 'only whoever may resolve approvals resolves them',
    file: 'apps/api/src/routes/requests/resolve-approval.ts',
    text: "access: ['approvals:resolve']",
    replacement: "access: ['approvals:resolve', 'runner']",
    test: { file: 'tests/scenarios/approvals.spec.ts', name: 'a runner asks before it acts' },
  },
];
