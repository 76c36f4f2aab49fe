import type { AdmissionOf, BusyPolicy } from '@runplane/contracts';
import { eachInOwnTransaction, inTransaction, type Db } from '@runplane/database';
import { ackCoalescer } from './ack-coalescer';
import { ackCommand } from './ack-command';
import { acknowledgeCancel } from './acknowledge-cancel';
import { admitSteer } from './admit-steer';
import { admitTurn, type AdmitTurnInput } from './admit-turn';
import { cancelCommand } from './cancel-command';
import { cancelRun } from './cancel-run';
import { cancelSession } from './cancel-session';
import { createCommand } from './create-command';
import { appendRunSessionEvents } from './append-run-session-events';
import { requestApproval, requestInput } from './ask-people';
import { createRun } from './create-run';
import { deleteSession } from './delete-session';
import { finishCommand } from './finish-command';
import { finishRun } from './finish-run';
import { recordingRefusal, runnerCall } from './record-refusal';
import { registerRunner } from './register-runner';
import { saveRunnerJob } from './runner-jobs';
import { confirmRunnerSlot, reserveRunnerSlot } from './runner-slots';

type Call<Operation extends (tx: never, input: never) => unknown> = Operation extends (tx: never, input: infer Input) => unknown
  ? Input
  : never;

/**
 * The one-call form of the operations: each in a transaction of its own. A runner's calls leave a record when they are refused as late or
 * stale. For calls that belong into your own transaction use the functions themselves, with a Tx.
 */
export function createRuns(db: Db) {
  return {
    ...eachInOwnTransaction(db, {
      createRun,
      createCommand,
      admitSteer,
      cancelRun,
      cancelCommand,
      cancelSession,
      deleteSession,
      registerRunner,
      saveRunnerJob,
      reserveRunnerSlot,
      confirmRunnerSlot,
    }),
    admitTurn: <Policy extends BusyPolicy = 'reject'>(input: AdmitTurnInput<Policy>): Promise<AdmissionOf<Policy>> =>
      inTransaction(db, (tx) => admitTurn(tx, input)),
    /** Those that arrive together share a transaction. */
    ackCommand: (input: Call<typeof ackCommand>) =>
      recordingRefusal(db, { ...input, source: 'command-ack' }, () =>
        db.options.coalesce ? ackCoalescer(db).run(input) : inTransaction(db, (tx) => ackCommand(tx, input)),
      ),
    acknowledgeCancel: (input: Call<typeof acknowledgeCancel>) =>
      runnerCall(db, { ...input, source: 'cancel-stage' }, (tx) => acknowledgeCancel(tx, input)),
    finishCommand: (input: Call<typeof finishCommand>) =>
      runnerCall(db, { ...input, source: 'command-status' }, (tx) => finishCommand(tx, input)),
    appendRunSessionEvents: (input: Call<typeof appendRunSessionEvents>) =>
      runnerCall(db, { ...input, source: 'session-append' }, (tx) => appendRunSessionEvents(tx, input)),
    requestApproval: (input: Call<typeof requestApproval>) =>
      runnerCall(db, { ...input, source: 'approval-request' }, (tx) => requestApproval(tx, input)),
    requestInput: (input: Call<typeof requestInput>) =>
      runnerCall(db, { ...input, source: 'input-request' }, (tx) => requestInput(tx, input)),
    finishRun: (input: Call<typeof finishRun>) => runnerCall(db, { ...input, source: 'run-status' }, (tx) => finishRun(tx, input)),
  };
}
