// Prints docs/state-machines.md from the tables of libs/contracts/src/states.ts: node scripts/print-states.mjs > docs/state-machines.md
import { readFileSync } from 'node:fs';
import { transformSync } from '@swc/core';

/** The module itself, from its source: no build can be stale. It imports nothing. */
function readStates() {
  const source = readFileSync(new URL('../libs/contracts/src/states.ts', import.meta.url), 'utf8');
  const { code } = transformSync(source, {
    swcrc: false,
    module: { type: 'commonjs' },
    jsc: { target: 'es2022', parser: { syntax: 'typescript' } },
  });
  const exports = {};
  new Function('exports', code)(exports);
  return exports;
}

const MACHINES = [
  {
    title: 'Run',
    states: 'RUN_STATES',
    transitions: 'RUN_TRANSITIONS',
    about:
      'Column `runs.status`. Born `pending` by `createRun` or `admitTurn`. `claimed` and `cancelling` have a holder with an epoch and a lease row. Every final state is written by `closeRun`, which the operations named here call.',
  },
  {
    title: 'Command',
    states: 'COMMAND_STATES',
    transitions: 'COMMAND_TRANSITIONS',
    about:
      'Column `commands.state`. Born `pending` by `createCommand` or `admitTurn`. A requested cancel stands in the cancel columns and moves no state; an outcome `blocked` closes a command as `failed` and keeps the failure kind.',
  },
  {
    title: 'Dispatch intent',
    states: 'INTENT_STATES',
    transitions: 'INTENT_TRANSITIONS',
    about:
      'Column `dispatch_intents.state`. Born `pending` with its command, or by the requeue of a run. `dispatching` is held by one dispatcher under an epoch and a lease.',
  },
  {
    title: 'Session',
    states: 'SESSION_STATES',
    transitions: 'SESSION_TRANSITIONS',
    about: 'Column `sessions.execution_state`. Born `idle`. `running` exactly while it has an active run and command.',
  },
  {
    title: 'Submission',
    states: 'SUBMISSION_STATES',
    transitions: 'SUBMISSION_TRANSITIONS',
    about:
      'Column `submissions.state`. Born `pending` by `acceptSubmission`. Whether the oldest one of a session is claimed stands on its head row, `submission_heads.state`: `waiting` to `claimed` by `claimSubmissions`, under the next epoch; back by `releaseSubmission` and `settleSubmissions`, which fence the holder; whatever moves the head to another submission leaves it `waiting`. A claim that has ended stays `claimed` until the next one takes it. After 10 claims `failExhaustedSubmissionsOnce` ends it. A re-queue puts a failed one behind all others. Deletion, fork and import end what is open, with events.',
  },
  {
    title: 'Cancel request',
    states: 'CANCEL_STAGES',
    transitions: 'CANCEL_STAGE_TRANSITIONS',
    about:
      'Column `cancel_requests.stage`; each stage is also an event `cancel-<stage>` of the run. `fenced`: the holder was cut off without an answer.',
  },
  {
    title: 'Approval',
    states: 'APPROVAL_STATES',
    transitions: 'APPROVAL_TRANSITIONS',
    about:
      'Column `approvals.state`, the view of the events `approval/requested` and `approval/resolved`. Born `pending` by `requestApproval`. A session worker may also append the resolution itself; the same guards stand in its way.',
  },
  {
    title: 'Input request',
    states: 'INPUT_STATES',
    transitions: 'INPUT_TRANSITIONS',
    about:
      'Column `input_requests.state`, the view of the events `user-input/requested` and `user-input/resolved`. Born `pending` by `requestInput`.',
  },
  {
    title: 'Queue task',
    states: 'QUEUE_TASK_STATES',
    transitions: 'QUEUE_TASK_TRANSITIONS',
    about:
      'Column `queue_tasks.state`. Born `pending` by `createQueueTasks`. `running` has exactly one active attempt: held by a worker under an epoch and a lease, or made by a run, or reported by a dispatcher of the caller’s own. `failed` and `blocked` have ended and may be retried.',
  },
  {
    title: 'Queue attempt',
    states: 'QUEUE_ATTEMPT_STATES',
    transitions: 'QUEUE_ATTEMPT_TRANSITIONS',
    births: 'QUEUE_ATTEMPT_BIRTHS',
    about:
      'Column `state` of `queue_attempts_all`: the table `queue_attempts`, and the attempts that stand in their tasks. `reserved` keeps other retries away until it is activated or its time is over; `reserved`, `pending` and `running` are active, and a task has at most one such attempt.',
  },
];

function printMachine(module, { title, states, transitions, births, about }) {
  const table = module[transitions];
  const moves = module[states].flatMap((from) => Object.entries(table[from]).map(([to, by]) => ({ from, to, by })));
  const finals = module[states].filter((state) => Object.keys(table[state]).length === 0);
  const diagram = [
    ...(births === undefined ? [module[states][0]] : module[births]).map((state) => `[*] --> ${state}`),
    ...moves.map(({ from, to }) => `${from} --> ${to}`),
    ...finals.map((state) => `${state} --> [*]`),
  ];
  return `## ${title}

${about}

\`\`\`mermaid
stateDiagram-v2
${diagram.map((line) => `  ${line}`).join('\n')}
\`\`\`

| from | to | by |
|---|---|---|
${moves.map(({ from, to, by }) => `| \`${from}\` | \`${to}\` | ${by.map((name) => `\`${name}\``).join(', ')} |`).join('\n')}

Final: ${finals.length === 0 ? 'none' : finals.map((state) => `\`${state}\``).join(', ')}.
`;
}

/** The driver's moves start from any state, so that a diagram would show nothing. */
function printDriver({ DRIVER_STATES, DRIVER_MOVES }) {
  const code = (words) => words.map((word) => `\`${word}\``).join(', ');
  return `## Driver of a session

Column \`session_heads.driver_state\`, the fold of the session's log by [snapshot.ts](../libs/sessions/src/projections/snapshot.ts). Born \`idle\`; states: ${code(DRIVER_STATES)}.
An event leads to the state of its first row whose conditions all hold, from any state; where none does, and on every other event, the state stays. Conditions are read when the event has
changed the open ids, the active turn and the inbox: \`asked\` (the answered id was open), \`at-work\` (the state was neither \`idle\` nor \`turn_completed\`), \`waits-for-input\` and \`turn-over\`
(it was \`input_waiting\`, \`turn_completed\`), \`own-turn\` (the event's turn is the active one), \`attention\` (\`attention_required\` is true).

| event | when | leads to |
|---|---|---|
${DRIVER_MOVES.map(({ on, when, to }) => `| \`${on}\` | ${code(when)} | \`${to}\` |`).join('\n')}
`;
}

export function printStates() {
  const module = readStates();
  return `# State machines

Printed by \`node scripts/print-states.mjs > docs/state-machines.md\` from [states.ts](../libs/contracts/src/states.ts). The database has the same words as enums; what is not listed here does not happen.

${MACHINES.map((machine) => printMachine(module, machine)).join('\n')}
${printDriver(module)}`;
}

if (process.argv[1] === new URL(import.meta.url).pathname) process.stdout.write(printStates());
