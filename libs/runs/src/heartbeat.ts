import { Heartbeat, isFinalRun, LeaseExpired, LeaseLost, LIST_ROWS_MAX, parseInput, type HeartbeatAnswer } from '@runplane/contracts';
import {
  coalescedBounds,
  coalescerOf,
  isTx,
  takingLock,
  type At,
  type Coalescer,
  type Db,
  type SqlExecutor,
  type Verdict,
} from '@runplane/database';
import { listCommandsAfter } from './command.sql';
import { listHeartbeatFacts, renewLeases, type Beat, type HeartbeatFacts, type Renewal } from './heartbeat.sql';
import { absentRun } from './require';
import type { RunKey } from './run.sql';

/**
 * Prolongs a runner's lease and tells it what it should know. One narrow row is locked and written; the run's row is not (its list order
 * does not move), so heartbeats never wait for appends. Called alone, those that arrive together in a process share their statements.
 *
 * Input     epoch: of the claim; leaseMs: counted from now; commandsAfterSeq: the last command that the runner knows.
 * Returns   the remaining lease and duration, the run's status, a requested cancel, cancelled and new commands, the server's time; `stop: true` when the run has
 *           ended and this epoch held it last.
 * Locks     run lease alone.   Writes: run_leases.
 * Errors    RunNotFound; LeaseLost (another epoch holds it, or it was taken away); LeaseExpired (an ended lease is not prolonged).
 * Keeps     OWN-1, OWN-2.   Source: the original's heartbeat.
 */
export async function heartbeat(at: At, { tenantId, runId, ...input }: RunKey & Heartbeat): Promise<HeartbeatAnswer> {
  const { epoch, leaseMs, commandsAfterSeq } = parseInput(Heartbeat, input);
  const beat: Beat = { tenantId, runId, epoch, leaseMs, commandsAfterSeq };
  return isTx(at) || !at.options.coalesce ? beatAlone(at, beat) : heartbeatCoalescer(at).run(beat);
}

/** Those that arrive together share their statements, on the lane; a lease that somebody else has locked is waited for on the pool. */
function heartbeatCoalescer(db: Db): Coalescer<Beat, HeartbeatAnswer> {
  return coalescerOf(db, 'heartbeat', () => ({
    describe: ({ tenantId, runId }) => ({ lane: `${tenantId}/${runId}`, single: 'heartbeat', last: false, rows: 1, bytes: 0 }),
    together: async (beats) => {
      const renewals = await renewLeases(db.lane, beats, { wait: false });
      const facts = await listHeartbeatFacts(db.lane, beats);
      return beats.map((beat, i): Verdict<HeartbeatAnswer> => {
        const renewal = renewals[i] ?? 'lost';
        return renewal === 'locked' ? { kind: 'busy' } : { kind: 'answer', answer: answerBeat(db.lane, beat, renewal, facts[i]) };
      });
    },
    alone: (beat) => beatAlone(db, beat),
    isRepeatable: () => true,
    ...coalescedBounds(db),
  }));
}

async function beatAlone(at: At, beat: Beat): Promise<HeartbeatAnswer> {
  const on: SqlExecutor = isTx(at) ? at : at.lane;
  if (isTx(at)) takingLock(at, 'runLease', `${beat.tenantId}/${beat.runId}`);
  let [renewal = 'lost'] = await renewLeases(on, [beat], { wait: isTx(at) });
  // Who waits for a row that is locked waits on the pool: on the lane the heartbeats of all other runs would wait with it.
  if (renewal === 'locked' && !isTx(at)) [renewal = 'lost'] = await renewLeases(at.sql, [beat], { wait: true });
  const [facts] = await listHeartbeatFacts(on, [beat]);
  return answerBeat(on, beat, renewal, facts);
}

async function answerBeat(on: SqlExecutor, beat: Beat, renewal: Renewal, facts: HeartbeatFacts | undefined): Promise<HeartbeatAnswer> {
  const { runId, epoch, leaseMs, commandsAfterSeq } = beat;
  if (facts === undefined) throw await absentRun(on, beat);
  const stop = isFinalRun(facts.status) && facts.claimEpoch === epoch;
  if (!stop) assertRenewed(renewal, { runId, epoch, currentEpoch: facts.claimEpoch });
  const commands =
    stop || !facts.hasNewCommands
      ? []
      : await listCommandsAfter(on, beat, { afterSeq: commandsAfterSeq, limit: LIST_ROWS_MAX, openOnly: true });
  return {
    runStatus: facts.status,
    stop,
    leaseRemainingMs: stop ? 0 : leaseMs,
    durationRemainingMs: facts.durationDeadlineInMs === null ? null : Math.max(facts.durationDeadlineInMs, 0),
    cancel:
      facts.cancelRequestId === null || facts.cancelReason === null || facts.status !== 'cancelling'
        ? null
        : { requestId: facts.cancelRequestId, reason: facts.cancelReason, deadlineRemainingMs: facts.cancelDeadlineInMs },
    cancelledCommands: facts.cancelledCommands,
    commands,
    serverTime: facts.serverTime,
  };
}

function assertRenewed(renewal: Renewal, about: { runId: string; epoch: number; currentEpoch: number }): void {
  if (renewal === 'renewed') return;
  const { runId, epoch, currentEpoch } = about;
  if (renewal === 'expired' && epoch === currentEpoch) {
    throw new LeaseExpired(`The lease on run ${runId} ended before this call: claim the run anew, or stop.`, { runId, epoch });
  }
  throw leaseLost(about);
}

export function leaseLost({ runId, epoch, currentEpoch }: { runId: string; epoch: number; currentEpoch: number }): LeaseLost {
  return new LeaseLost(`Epoch ${epoch} no longer holds run ${runId}: stop working on it.`, { runId, epoch, currentEpoch });
}
