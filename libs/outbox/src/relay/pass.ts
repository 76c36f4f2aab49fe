import { redactError } from '@runplane/contracts';
import { remainingSince, type Db } from '@runplane/database';
import { failed, type PublishOutcome, type PublishRecord } from '../publisher';
import { isIsolated, settleShard, type DueKey, type Page, type ShardSettlement } from './pass-decisions';
import { readShards, type HeldShard, type ReadShard } from './pass.sql';
import { writeSettlements } from './settle.sql';
import type { Sink, SinkLimits } from './sink';

export interface PassResult {
  /** Lost while the pass was under way; what was sent of them is sent again by their owner. */
  readonly lost: readonly HeldShard[];
  readonly sent: number;
  readonly refused: number;
  /** Shards that a failure of the sink has stopped. */
  readonly failed: number;
  /** There is more to do at once. */
  readonly more: boolean;
  /** Events lie above the horizon: look again soon, nobody says when a writer has ended. */
  readonly waiting: boolean;
  /** When the first back-off of this pass ends; undefined: there is none. */
  readonly backOffMs: number | undefined;
}

export const NOTHING_DONE: PassResult = { lost: [], sent: 0, refused: 0, failed: 0, more: false, waiting: false, backOffMs: undefined };

/** What must be left of the leases when the last answer comes, to settle it. */
const settleMs = ({ leaseMs }: SinkLimits): number => Math.min(leaseMs / 10, 500);
/** With less than that left nothing is sent: a sign of life is due. */
const SEND_MS_MIN = 20;
/** Keys that are tried alone take a send each; the shards of a pass wait for them. */
const ALONE_MAX = 2;

/**
 * One pass over some shards of a sink that this relay holds: read, send, settle. Nothing is locked while it sends; a shard whose lease was lost
 * meanwhile is not settled.
 *
 * Keeps     RELAY-1, OWN-1. Errors: of the database alone; the sink's become back-offs.
 */
export async function relayPass(
  db: Db,
  sink: Sink,
  { owner, shards, signal }: { owner: string; shards: readonly HeldShard[]; signal?: AbortSignal | undefined },
): Promise<PassResult> {
  const askedAt = performance.now();
  const read = await readShards(db.sql, sink, { owner, shards });
  const waiting = read.some((shard) => shard.waiting);
  const busy = anyFirst(read.filter(hasWork));
  if (busy.length === 0) return { ...NOTHING_DONE, waiting };

  const leaseMs = Math.min(...busy.map(({ remainingMs }) => remainingMs));
  const timeLeft = (): number => Math.min(sink.limits.sendTimeoutMs, remainingSince(leaseMs, askedAt) - settleMs(sink.limits));
  if (timeLeft() < SEND_MS_MIN) return { ...NOTHING_DONE, waiting, backOffMs: SEND_MS_MIN };
  const outcomes = new Map<PublishRecord, PublishOutcome>();
  await send(sink, busy.flatMap(recordsOf), { timeLeft, signal, outcomes });
  const alone = busy.flatMap(({ keys }) => keys.filter(isIsolated)).slice(0, ALONE_MAX);
  for (const key of alone) await send(sink, recordsOfKey(key), { timeLeft, signal, outcomes });

  const settlements = busy.map((shard) => settleShard(shard, outcomes, sink.limits));
  const settled = await writeSettlements(db.sql, { sink: sink.name, owner, settlements });
  return resultOf(settlements, { settled, outcomes, waiting });
}

/** Another shard first each time: where a sink takes less than there is, none is left behind for ever. */
function anyFirst(shards: readonly ReadShard[]): readonly ReadShard[] {
  const first = Math.floor(Math.random() * shards.length);
  return [...shards.slice(first), ...shards.slice(0, first)];
}

const isPageEmpty = ({ end }: Page): boolean => end === undefined;
const hasWork = ({ keys, replaying, fresh }: ReadShard): boolean => keys.length > 0 || replaying || !isPageEmpty(fresh);

const recordsOfKey = ({ events }: DueKey): PublishRecord[] => events.flatMap(({ record }) => record ?? []);
const recordsOfPage = ({ items }: Page): PublishRecord[] => items.flatMap(({ record }) => record ?? []);
/** In the order of each key: what waits first, then what is sent again, then what is new. */
const recordsOf = ({ keys, replay, fresh }: ReadShard): PublishRecord[] => [
  ...keys.filter((key) => !isIsolated(key)).flatMap(recordsOfKey),
  ...recordsOfPage(replay),
  ...recordsOfPage(fresh),
];

/** Sends within what is left of the leases; with nothing left, nothing is sent, and the pass comes again after a renewal. */
async function send(
  sink: Sink,
  records: readonly PublishRecord[],
  { timeLeft, signal, outcomes }: { timeLeft: () => number; signal: AbortSignal | undefined; outcomes: Map<PublishRecord, PublishOutcome> },
): Promise<void> {
  const timeoutMs = Math.floor(timeLeft());
  if (records.length === 0 || timeoutMs <= 0 || signal?.aborted === true) return;
  const answers = await sink.publisher.publish(records, { timeoutMs, signal }).catch((error: unknown) => redactError(error));
  const broken = typeof answers === 'string' ? answers : `the publisher has answered for ${answers.length} of ${records.length} events`;
  for (const [place, record] of records.entries())
    outcomes.set(
      record,
      (answers.length === records.length && typeof answers !== 'string' ? answers[place] : undefined) ?? failed('unavailable', broken),
    );
}

function resultOf(
  settlements: readonly ShardSettlement[],
  { settled, outcomes, waiting }: { settled: ReadonlySet<number>; outcomes: ReadonlyMap<PublishRecord, PublishOutcome>; waiting: boolean },
): PassResult {
  const done = settlements.filter(({ shard }) => settled.has(shard));
  const backOffs = done.flatMap(({ failure, blocked }) => [
    ...(failure === undefined ? [] : [failure.delayMs]),
    ...blocked.flatMap(({ parked, delayMs }) => (parked ? [] : [delayMs])),
  ]);
  return {
    lost: settlements.filter(({ shard }) => !settled.has(shard)).map(({ shard, epoch }) => ({ shard, epoch })),
    sent: done.reduce((sum, { sent }) => sum + sent, 0),
    refused: [...outcomes.values()].filter(({ kind }) => kind === 'refused').length,
    failed: done.filter(({ failure }) => failure !== undefined).length,
    more: done.some(({ more }) => more),
    waiting,
    backOffMs: backOffs.length === 0 ? undefined : Math.min(...backOffs),
  };
}
