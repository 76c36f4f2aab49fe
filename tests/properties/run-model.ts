import { BUSY_POLICIES, isFinalRun, type CommandState, type RunState } from '@runplane/contracts';
import {
  appendRunEvents,
  claimDispatchIntents,
  claimRun,
  completeDispatchIntent,
  createRuns,
  failUnclaimedRunsOnce,
  heartbeat,
  retryDispatchIntent,
  sweepCancelDeadlinesOnce,
  sweepLostRunnersOnce,
} from '@runplane/runs';
import { inTransaction, type Db } from '@runplane/database';
import { endLease, message, newRun, newTurn, TENANT } from '@runplane/runs/testing';
import { ending } from '../support/races';

// What operations on one session's runs should answer and leave behind, in memory: the other side of run-commands.spec.ts.

const tenantId = TENANT;
const SESSION = 's';

interface ModelCommand {
  readonly id: string;
  readonly type: 'turn' | 'steer';
  state: CommandState;
}

interface ModelRun {
  readonly id: string;
  status: RunState;
  epoch: number;
  attempts: number;
  readonly requeues: boolean;
  holder: string | null;
  /** The lease has ended, and nobody has noticed. */
  ended: boolean;
  readonly commands: ModelCommand[];
}

const ATTEMPTS_MAX = 3;

/** What the database should hold, and what each operation should answer: a value, or the code of a refusal. */
export class Model {
  readonly db: Db;
  readonly runs: ModelRun[] = [];
  /** Commands whose cancel has been asked for, as the database has it: the model reads it, since who asked first does not move a state. */
  readonly cancelled = new Set<string>();
  activeRun: ModelRun | undefined;
  activeTurn: ModelCommand | undefined;
  /** Turns in the queue of the session. Nothing starts them here. */
  queued = 0;

  constructor(db: Db) {
    this.db = db;
  }

  close(run: ModelRun, state: 'completed' | 'failed' | 'cancelled'): void {
    run.status = state;
    run.holder = null;
    run.ended = false;
    for (const command of run.commands) if (isOpen(command)) command.state = command.type === 'steer' ? 'failed' : state;
    if (this.activeRun === run) this.free();
  }

  closeCommand(run: ModelRun, command: ModelCommand, state: 'completed' | 'cancelled'): void {
    command.state = state;
    if (command.type !== 'turn') return;
    for (const steer of run.commands) if (steer.type === 'steer' && isOpen(steer)) steer.state = 'failed';
    if (this.activeTurn === command) this.free();
  }

  /** Whether a steer finds the open turn of a run with a runner, or with one that is about to come: of a run's commands the first alone is dispatched. */
  isReceivable(run: ModelRun): boolean {
    const turn = openTurn(run);
    if (turn === undefined || this.cancelled.has(turn.id)) return false;
    return run.status === 'claimed' ? !run.ended : run.status === 'pending' && run.commands[0] === turn;
  }

  free(): void {
    this.activeRun = undefined;
    this.activeTurn = undefined;
  }
}

const isOpen = ({ state }: ModelCommand): boolean => state === 'pending' || state === 'acknowledged';
const isHeld = ({ status }: ModelRun): boolean => status === 'claimed' || status === 'cancelling';
const openTurn = (run: ModelRun): ModelCommand | undefined => run.commands.find((command) => command.type === 'turn' && isOpen(command));

/** The refusal that a writer of `epoch` gets, if any. */
function writerRefusal(run: ModelRun, epoch: number): string | undefined {
  if (epoch !== run.epoch) return 'lease_lost';
  if (isFinalRun(run.status)) return 'run_closed';
  return isHeld(run) ? undefined : 'lease_lost';
}

export interface Step {
  readonly operation: string;
  /** Runs the operation and gives its refusal or `done`. */
  run(): Promise<string>;
  /** Moves the model, and gives what the operation should have answered. */
  expect(model: Model): string;
}

const refusalOf = async (call: Promise<unknown>): Promise<string> => {
  const ended = await ending(call);
  return 'code' in ended ? ended.code : 'done';
};

let keys = 0;
export const newKey = (): string => `key-${(keys += 1)}`;

/** Picks a run by a number, the newest first. */
const pickRun = (model: Model, pick: number): ModelRun | undefined =>
  model.runs.at(-1 - (pick % Math.max(Math.min(model.runs.length, 3), 1)));
const pickCommand = (run: ModelRun, pick: number): ModelCommand | undefined =>
  run.commands.at(-1 - (pick % Math.max(run.commands.length, 1)));

export interface Choice {
  readonly operation: (typeof OPERATIONS)[number];
  readonly run: number;
  readonly command: number;
  /** The epoch that is named lies this much below the current one. */
  readonly staleness: number;
  readonly flag: boolean;
}

export const OPERATIONS = [
  'admitTurn',
  'admitTurn',
  'admitSteer',
  'claimRun',
  'claimRun',
  'heartbeat',
  'appendRunEvents',
  'ackCommand',
  'finishCommand',
  'finishRun',
  'cancelRun',
  'cancelCommand',
  'steer',
  'secondTurn',
  'endLease',
  'sweepLostRunnersOnce',
  'sweepCancelDeadlinesOnce',
  'failUnclaimedRunsOnce',
  'settleDispatch',
] as const;

/** Turns a choice into a step; undefined where there is nothing to choose from. */
export function stepOf(choice: Choice, model: Model): Step | undefined {
  if (choice.operation === 'admitTurn') return admitTurn(choice, model);
  if (choice.operation === 'admitSteer') return admitSteer(model);
  const run = pickRun(model, choice.run);
  if (run === undefined) return undefined;
  const epoch = run.epoch - choice.staleness;
  if (epoch < 1 && ['heartbeat', 'appendRunEvents', 'ackCommand', 'finishCommand', 'finishRun'].includes(choice.operation))
    return undefined;
  const command = pickCommand(run, choice.command);
  return onRun(choice, model.db, run, command, { tenantId, runId: run.id }, epoch);
}

function admitTurn({ flag: requeues, command }: Choice, model: Model): Step {
  const busyPolicy = BUSY_POLICIES[command % BUSY_POLICIES.length] ?? 'reject';
  let made = { runId: '', commandId: '' };
  const turn = {
    ...newTurn('hello', { run: newRun({ onRunnerLost: requeues ? 'requeue' : 'fail', maxAttempts: ATTEMPTS_MAX }) }),
    busyPolicy,
  };
  return {
    operation: 'admitTurn',
    run: () =>
      refusalOf(
        createRuns(model.db)
          .admitTurn({ tenantId, sessionId: SESSION, idempotencyKey: newKey(), turn })
          .then((admission) => {
            if ('run' in admission) made = { runId: admission.run.id, commandId: admission.command.id };
          }),
      ),
    expect() {
      const active = model.activeRun;
      const isStale = active !== undefined && isHeld(active) && active.ended;
      if (busyPolicy === 'enqueue' && (model.queued > 0 || (active !== undefined && !isStale))) {
        model.queued += 1;
        return 'done';
      }
      if (isStale) model.close(active, active.status === 'cancelling' ? 'cancelled' : 'failed');
      else if (active !== undefined) {
        if (busyPolicy === 'reject') return 'session_busy';
        if (busyPolicy === 'steer') {
          if (!model.isReceivable(active)) return 'no_receivable_turn';
          active.commands.push({ id: made.commandId, type: 'steer', state: 'pending' });
          return 'done';
        }
        if (active.status !== 'pending') {
          active.status = 'cancelling';
          return 'done';
        }
        model.close(active, 'cancelled');
      }
      const started: ModelCommand = { id: made.commandId, type: 'turn', state: 'pending' };
      const run: ModelRun = {
        id: made.runId,
        status: 'pending',
        epoch: 0,
        attempts: 0,
        requeues,
        holder: null,
        ended: false,
        commands: [started],
      };
      model.runs.push(run);
      [model.activeRun, model.activeTurn] = [run, started];
      return 'done';
    },
  };
}

function admitSteer(model: Model): Step {
  let made = '';
  return {
    operation: 'admitSteer',
    run: () =>
      refusalOf(
        createRuns(model.db)
          .admitSteer({ tenantId, sessionId: SESSION, idempotencyKey: newKey(), steer: { payload: { text: 'more' } } })
          .then(({ command }) => (made = command.id)),
      ),
    expect() {
      if (model.runs.length === 0) return 'session_not_found';
      if (model.activeRun === undefined || !model.isReceivable(model.activeRun)) return 'no_receivable_turn';
      model.activeRun.commands.push({ id: made, type: 'steer', state: 'pending' });
      return 'done';
    },
  };
}

function onRun(
  { operation, flag }: Choice,
  db: Db,
  run: ModelRun,
  command: ModelCommand | undefined,
  key: { tenantId: string; runId: string },
  epoch: number,
): Step | undefined {
  const runs = createRuns(db);
  const step = (call: () => Promise<unknown>, expect: (model: Model) => string): Step => ({
    operation,
    run: () => refusalOf(call()),
    expect,
  });
  /** The end of a written step of the current holder. */
  const asWriter = (then: (model: Model) => string) => (model: Model) => writerRefusal(run, epoch) ?? then(model);
  switch (operation) {
    case 'admitTurn':
    case 'admitSteer':
      return undefined;
    case 'claimRun': {
      const runnerId = flag ? 'r1' : 'r2';
      return step(
        () => claimRun(db, { ...key, runnerId }),
        () => {
          if (isFinalRun(run.status)) return 'run_closed';
          if (run.status === 'cancelling') return 'run_cancelling';
          if (run.status === 'claimed' && !run.ended) return run.holder === runnerId ? 'done' : 'run_claimed';
          if (run.status === 'claimed' && run.attempts >= ATTEMPTS_MAX) return 'run_claimed';
          Object.assign(run, { status: 'claimed', holder: runnerId, ended: false, epoch: run.epoch + 1, attempts: run.attempts + 1 });
          return 'done';
        },
      );
    }
    case 'heartbeat':
      return step(
        () => heartbeat(db, { ...key, epoch }),
        () => {
          if (isFinalRun(run.status)) return epoch === run.epoch ? 'done' : 'lease_lost';
          if (!isHeld(run) || epoch !== run.epoch) return 'lease_lost';
          return run.ended ? 'lease_expired' : 'done';
        },
      );
    case 'appendRunEvents': {
      const call = { type: 'tool_call', payload: { callId: newKey(), name: 'ls', arguments: {} } };
      return step(
        () => appendRunEvents(db, { ...key, epoch, events: flag ? [message('x'), call] : [message('x')] }),
        asWriter(() => 'done'),
      );
    }
    case 'ackCommand':
      if (command === undefined) return undefined;
      return step(
        () => runs.ackCommand({ ...key, commandId: command.id, epoch }),
        asWriter(() => {
          if (command.state === 'pending') command.state = 'acknowledged';
          return 'done';
        }),
      );
    case 'finishCommand':
      if (command === undefined) return undefined;
      return step(
        () => runs.finishCommand({ ...key, commandId: command.id, epoch, outcome: { terminalStatus: 'completed' } }),
        (model) => {
          if (writerRefusal(run, epoch) === 'lease_lost') return 'lease_lost';
          if (command.state === 'completed') return 'done';
          if (isFinalRun(run.status)) return 'run_closed';
          if (!isOpen(command)) return 'command_closed';
          model.closeCommand(run, command, 'completed');
          return 'done';
        },
      );
    case 'finishRun':
      return step(
        () =>
          runs.finishRun({
            ...key,
            epoch,
            outcome: flag ? { terminalStatus: 'completed' } : { terminalStatus: 'failed', failureKind: 'backend-failed' },
          }),
        (model) => {
          const wanted = flag ? 'completed' : 'failed';
          const refused = writerRefusal(run, epoch);
          // A repeat is recognised by state and failure kind; runs that the server has failed have another kind.
          if (refused === 'run_closed' && run.status === wanted && (flag || run.holder === 'self-failed')) return 'done';
          if (refused !== undefined) return refused;
          model.close(run, wanted);
          if (!flag) run.holder = 'self-failed';
          return 'done';
        },
      );
    case 'cancelRun':
      return step(
        () => runs.cancelRun({ ...key, graceMs: 600_000, immediate: flag }),
        (model) => {
          if (isFinalRun(run.status)) return 'done';
          if (run.status === 'pending' || flag || run.ended) model.close(run, 'cancelled');
          else run.status = 'cancelling';
          return 'done';
        },
      );
    case 'cancelCommand':
      if (command === undefined) return undefined;
      return step(
        () => runs.cancelCommand({ tenantId, commandId: command.id, graceMs: 600_000, immediate: flag }),
        (model) => {
          if (!isOpen(command) || (isHeld(run) && !run.ended && !flag)) return 'done';
          model.closeCommand(run, command, 'cancelled');
          // The runner that a pending run waits for would find nothing to do.
          if (run.status === 'pending' && !run.commands.some(isOpen)) model.close(run, 'cancelled');
          return 'done';
        },
      );
    case 'steer':
    case 'secondTurn': {
      let made = '';
      const type = operation === 'steer' ? 'steer' : 'turn';
      return {
        operation: 'createCommand',
        run: () =>
          refusalOf(
            runs
              .createCommand({ ...key, idempotencyKey: newKey(), command: { type, payload: { text: 'more' } } })
              .then((created) => (made = created.command.id)),
          ),
        expect(model) {
          if (isFinalRun(run.status)) return 'run_closed';
          if (run.status === 'cancelling') return 'run_cancelling';
          if (type === 'steer' && !model.isReceivable(run)) return 'no_receivable_turn';
          if (type === 'turn' && model.activeRun !== undefined) return 'session_busy';
          const created: ModelCommand = { id: made, type, state: 'pending' };
          run.commands.push(created);
          if (type === 'turn') [model.activeRun, model.activeTurn] = [run, created];
          return 'done';
        },
      };
    }
    case 'endLease':
      return step(
        () => endLease(db, run.id),
        () => {
          run.ended ||= isHeld(run);
          return 'done';
        },
      );
    case 'sweepLostRunnersOnce':
      return step(
        () => sweepLostRunnersOnce(db),
        (model) => {
          for (const each of model.runs.filter((candidate) => isHeld(candidate) && candidate.ended)) {
            if (each.status === 'cancelling') model.close(each, 'cancelled');
            else if (each.requeues && each.attempts < ATTEMPTS_MAX) requeue(model, each);
            else model.close(each, 'failed');
          }
          return 'done';
        },
      );
    case 'sweepCancelDeadlinesOnce':
      return step(
        () => passCancelDeadlines(db, run.id).then(() => sweepCancelDeadlinesOnce(db)),
        (model) => {
          if (run.status === 'cancelling') model.close(run, 'cancelled');
          for (const each of run.commands.filter((candidate) => isOpen(candidate) && model.cancelled.has(candidate.id)))
            if (isOpen(each)) model.closeCommand(run, each, 'cancelled');
          return 'done';
        },
      );
    case 'failUnclaimedRunsOnce':
      return step(
        () => passClaimDeadline(db, run.id).then(() => failUnclaimedRunsOnce(db)),
        (model) => {
          if (run.status === 'pending') model.close(run, 'failed');
          return 'done';
        },
      );
    case 'settleDispatch':
      return step(settleDispatch(db, flag), () => 'done');
  }
}

async function passCancelDeadlines(db: Db, runId: string): Promise<void> {
  for (const [table, id] of [
    ['runs', 'id'],
    ['commands', 'run_id'],
  ] as const)
    await db.pool.query(`UPDATE runplane.${table} SET cancel_deadline_at = cancel_deadline_at - interval '1 day' WHERE ${id} = $1`, [
      runId,
    ]);
}

const passClaimDeadline = (db: Db, runId: string) =>
  db.pool.query(`UPDATE runplane.runs SET claim_deadline_at = claim_deadline_at - interval '1 day' WHERE id = $1`, [runId]);

/** Of a run's commands the first alone was dispatched: without it nobody would come for the others. */
function requeue(model: Model, run: ModelRun): void {
  for (const command of run.commands) if (isOpen(command) && model.cancelled.has(command.id)) model.closeCommand(run, command, 'cancelled');
  const [dispatched] = run.commands;
  if (dispatched === undefined || !isOpen(dispatched)) return model.close(run, 'failed');
  Object.assign(run, { status: 'pending', holder: null, ended: false, epoch: run.epoch + 1 });
  for (const command of run.commands) if (command.state === 'acknowledged') command.state = 'pending';
}

/** Claims what is due and settles it as dispatched or to be tried again: neither moves a run. */
const settleDispatch = (db: Db, done: boolean) => async (): Promise<void> => {
  for (const intent of await claimDispatchIntents(db, { owner: 'd', limit: 3 })) {
    const claim = { ...intent, intentId: intent.id, owner: 'd' };
    await inTransaction(db, (tx) =>
      done
        ? completeDispatchIntent(tx, claim, { outcome: 'created', job: { launcher: 'test', jobName: 'x', result: {} } })
        : retryDispatchIntent(tx, claim, { error: 'x', delayMs: 0 }),
    );
  }
};
