import {
  AppendEvents,
  CommandNotOfRun,
  isFinalRun,
  OPEN_TOOL_CALLS_MAX,
  parseInput,
  ProducerConflict,
  ProducerGap,
  TooManyOpenToolCalls,
  TransactionConflict,
  type AppendedEvents,
  type NewRunEvent,
} from '@runplane/contracts';
import { announce, executorOf, isTx, maybeRow, sql, takingLock, type At, type Db, type Sql, type SqlExecutor } from '@runplane/database';
import { feedStreams } from '@runplane/outbox';
import type { RunnerBatch } from './append-batch.sql';
import { appendCoalescer, appendedEvents } from './append-coalescer';
import { runClosed } from './create-command';
import { leaseLost } from './heartbeat';
import { recordRefusalAfter } from './record-refusal';
import { absentRun, eventsPruned } from './require';
import { findProducerState, listUnknownCommands, type ProducerState } from './producer.sql';
import {
  Appended,
  appendStatement,
  findLogHead,
  listBatchEvents,
  recountOpenToolCalls,
  toolCallsIn,
  type StorableEvent,
} from './run-event.sql';
import { storableRunnerEvents } from './run-event-input';
import { runStream, type RunKey } from './run.sql';

/** A refusal that no fact explains is a change between two statements; the second look sees it. */
const LOOKS_MAX = 4;

/**
 * Appends a runner's events to its run: one guarded statement, all or none.
 *
 * Input     epoch: of the claim; producerSequence: 1, 2, 3 … per epoch and call; events: 1–500, together up to 4 MiB.
 * Returns   the sequences and ids. A batch that was appended before under its producer sequence returns its stored events, also when the run has
 *           ended meanwhile.
 * Locks     run.   Writes: runs (counters), run_events, outbox.
 * Errors    RunNotFound, RunDeleted; EventsPruned (a repeat of what retention has removed); LeaseLost (another epoch), RunClosed, both recorded in the run's log at most once a minute; ProducerGap,
 *           ProducerConflict, CommandNotOfRun, TooManyOpenToolCalls, InvalidRequest, InvalidJson, ReservedEventType, PayloadTooLarge.
 * Emits     the events.
 * Repeat    safe with a producer sequence; without one a repeated call appends again.
 * Keeps     LOG-1 to LOG-3, OWN-1, OWN-2 (judged by epoch and state alone), FEED-1.   Source: the original's appendEvent.
 */
export async function appendRunEvents(
  at: At,
  { tenantId, runId, ...input }: RunKey & Omit<AppendEvents, 'events'> & { events: readonly NewRunEvent[] },
): Promise<AppendedEvents> {
  const { epoch, producerSequence, events } = parseInput(AppendEvents, input);
  const batch: RunnerBatch = { tenantId, runId, epoch, sequence: producerSequence, ...storableRunnerEvents(events) };
  if (isTx(at) || !at.options.coalesce) return appendAlone(at, batch);
  return appendCoalescer(at, { alone: appendAlone, refused: appendRefused }).run(batch);
}

/** The append of one call by a statement of its own, which waits for the run. */
async function appendAlone(at: At, batch: RunnerBatch): Promise<AppendedEvents> {
  const { tenantId, runId } = batch;
  if (isTx(at)) takingLock(at, 'run', `${tenantId}/${runId}`);
  for (let look = 1; look <= LOOKS_MAX; look += 1) {
    const appended = await maybeRow(executorOf(at), Appended, runnerAppend(batch, isTx(at) ? at.feed.value : 0n));
    if (appended !== undefined) {
      for (const stream of [runStream(batch), ...feedStreams(tenantId)]) announce(at, stream);
      return appendedEvents(batch, appended.lastSeq);
    }
    const run = await findProducerState(executorOf(at), batch);
    if (run === undefined) throw await absentRun(executorOf(at), batch);
    const replay = await explainRefusal(at, batch, run);
    if (replay !== undefined) return replay;
  }
  throw new TransactionConflict(`Run ${runId} changed at every look: repeat the call.`, { attempts: LOOKS_MAX });
}

/** The answer to a call that the guards refused in a batch. */
async function appendRefused(db: Db, batch: RunnerBatch, run: ProducerState): Promise<AppendedEvents> {
  return (await explainRefusal(db, batch, run)) ?? appendAlone(db, batch);
}

/** The append under a runner's guards: its epoch, an open run, the next producer sequence, commands of this run. */
export function runnerAppend(batch: RunnerBatch, floor: bigint): Sql {
  const { epoch, sequence, events } = batch;
  const commandIds = commandIdsOf(events);
  // Commands of a run are never removed while it is open, so that the snapshot's look at them is good enough for a guard.
  const commandsGuard =
    commandIds.length === 0
      ? sql``
      : sql`AND (SELECT count(*) FROM runplane.commands c WHERE c.tenant_id = ${batch.tenantId}::text AND c.run_id = ${batch.runId}::text
              AND c.id = ANY (${commandIds}::text[])) = ${commandIds.length}::int`;
  const producerGuard = sequence === undefined ? sql`` : sql`AND last_producer_seq = ${sequence - 1}::int`;
  const calls = toolCallsIn(events);
  const callsGuard = calls === 0 ? sql`` : sql`AND open_tool_calls <= ${OPEN_TOOL_CALLS_MAX - calls}::int`;
  const callsSet = calls === 0 ? sql`` : sql`, open_tool_calls = open_tool_calls + ${calls}::int`;
  return appendStatement(batch, events, {
    guard: sql`AND claim_epoch = ${epoch}::int AND status IN ('claimed', 'cancelling') ${producerGuard} ${commandsGuard} ${callsGuard}`,
    set: sequence === undefined ? callsSet : sql`, last_producer_seq = ${sequence}::int${callsSet}`,
    floor,
    producer: { epoch, sequence },
  });
}

const commandIdsOf = (events: readonly StorableEvent[]): string[] => [
  ...new Set(events.map((event) => event.commandId).filter((id) => id !== null)),
];

/** Says why the guards refused, or answers a repeated batch; undefined: look again, nothing stands in the way any more. */
async function explainRefusal(at: At, batch: RunnerBatch, run: ProducerState): Promise<AppendedEvents | undefined> {
  const on = executorOf(at);
  const { runId, epoch, sequence } = batch;
  if (run.claimEpoch !== epoch) {
    await recordRefusalAfter(at, { ...batch, phase: 'stale-writer-refused', source: 'event-append' });
    throw leaseLost({ runId, epoch, currentEpoch: run.claimEpoch });
  }
  if (sequence !== undefined && sequence <= run.lastProducerSeq) return replayOf(on, batch, sequence);
  if (isFinalRun(run.status)) {
    await recordRefusalAfter(at, { ...batch, phase: 'late-write-rejected', source: 'event-append' });
    throw runClosed({ id: runId, status: run.status, failureKind: run.failureKind });
  }
  if (run.status === 'pending') throw leaseLost({ runId, epoch, currentEpoch: run.claimEpoch });
  if (sequence !== undefined && sequence > run.lastProducerSeq + 1) {
    const expected = run.lastProducerSeq + 1;
    throw new ProducerGap(`Batch ${expected} of this epoch is missing: send it first.`, { expected, received: sequence });
  }
  const [unknown] = await listUnknownCommands(on, batch, commandIdsOf(batch.events));
  if (unknown !== undefined) throw new CommandNotOfRun(`Run ${runId} has no command ${unknown}.`, { commandId: unknown });
  await assertRoomForToolCalls(on, batch);
  return undefined;
}

/** The counter of open tool calls goes up only; where it is in the way it is set to what is open. Errors: TooManyOpenToolCalls. */
async function assertRoomForToolCalls(on: SqlExecutor, batch: RunnerBatch): Promise<void> {
  const calls = toolCallsIn(batch.events);
  if (calls === 0) return;
  const open = await recountOpenToolCalls(on, batch);
  if (open + calls <= OPEN_TOOL_CALLS_MAX) return;
  throw new TooManyOpenToolCalls(`Run ${batch.runId} has ${open} tool calls without a result: report results first.`, {
    runId: batch.runId,
    open,
    openMax: OPEN_TOOL_CALLS_MAX,
  });
}

async function replayOf(on: SqlExecutor, batch: RunnerBatch, sequence: number): Promise<AppendedEvents> {
  const stored = await listBatchEvents(on, batch, { epoch: batch.epoch, sequence });
  const same =
    stored.length === batch.events.length &&
    stored.every((event, i) => event.type === batch.events[i]?.type && event.payloadText === batch.events[i].payloadText);
  const [first, last] = [stored[0], stored.at(-1)];
  const head = stored.length === 0 ? await findLogHead(on, batch) : undefined;
  if (head?.pruned != null) throw eventsPruned(batch.runId, head.pruned); // what the batch was cannot be told any more
  if (!same || first === undefined || last === undefined) {
    throw new ProducerConflict(`Batch ${sequence} of this epoch has other events.`, { producerSequence: sequence });
  }
  return { firstSeq: first.seq, lastSeq: last.seq, eventIds: stored.map((event) => event.id), replayed: true };
}
