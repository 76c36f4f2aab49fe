import {
  CursorExpired,
  EnableSink,
  FORGET_HELD_MAX,
  parseInput,
  Republish,
  RepublishRunning,
  SinkDisabled,
  type ChangedSink,
  type Republishing,
} from '@runplane/contracts';
import { readStore, type Tx } from '@runplane/database';
import { encodeFeedCursor, isBefore } from '../feed-cursor';
import type { FeedPlace } from '../feed.sql';
import { holdOutboxFloor } from '../outbox-floor.sql';
import {
  ALL_SHARDS,
  findRestart,
  forgetHeld,
  lockShards,
  restartShards,
  standsBelow,
  writeEnabled,
  writeReplay,
  writeRestart,
} from './operate.sql';
import { startOf } from './register-sinks';
import { requireSink } from './require-sink';

/**
 * Sends a range of the feed to one sink once more, in order per key, beside what is new. What the sink has not got yet comes by itself and is left
 * out; a key that is blocked waits as ever. Consumers that drop by sequence see nothing of it.
 *
 * Input     from: a cursor, or `oldest`; to: a cursor, or `now`.
 * Locks     floor (FOR SHARE) → outbox shards, by number.   Writes: outbox_shards.
 * Errors    SinkNotFound, SinkDisabled, RepublishRunning, InvalidCursor, CursorExpired (another store, or below the retention floor).
 */
export async function republish(tx: Tx, { sink, ...input }: { sink: string } & Republish): Promise<Republishing> {
  const range = parseInput(Republish, input);
  const { enabled } = await requireSink(tx, sink);
  if (!enabled) throw new SinkDisabled(`Sink ${sink} is disabled: enable it first.`, { sink });
  const from = await startOf(tx, range.from);
  const to = range.to === 'now' ? undefined : await startOf(tx, range.to);
  const running = (await lockShards(tx, sink, ALL_SHARDS)).filter(({ replaying }) => replaying).length;
  if (running > 0) throw new RepublishRunning(`A range is being sent to ${sink} again already.`, { sink, shards: running });
  const shards = await writeReplay(tx, { sink, from, to });
  tx.changed('feed');
  const { storeId } = await readStore(tx);
  return { sink, shards, from: encodeFeedCursor(storeId, from), to: range.to };
}

/**
 * Stops all relaying to a sink, at once: what a pass under way has sent is not settled. A disabled sink holds back no retention.
 *
 * Locks     outbox shards, by number.   Errors: SinkNotFound.   Repeat: safe.
 */
export async function disableSink(tx: Tx, { sink }: { sink: string }): Promise<ChangedSink> {
  const { enabled } = await requireSink(tx, sink);
  await lockShards(tx, sink, ALL_SHARDS);
  if (enabled) await writeEnabled(tx, sink, false);
  tx.changed(`relay:${sink}`);
  return { sink, enabled: false, changed: enabled, more: false };
}

/**
 * Lets relays serve the sink again: where it was, or from `start`. What it held is forgotten then, so much a call: while there is more the sink is
 * disabled, and the same call, with or without the start, goes on.
 *
 * Locks     floor (FOR SHARE) → outbox shards, by number.   Writes: outbox_sinks, outbox_shards; with a start outbox_held, outbox_blocked_keys.
 * Errors    SinkNotFound, InvalidCursor, CursorExpired (what it had not got has been removed meanwhile: give a start).   Repeat: safe without a start.
 */
export async function enableSink(tx: Tx, { sink, ...input }: { sink: string } & EnableSink): Promise<ChangedSink> {
  const { start } = parseInput(EnableSink, input);
  const { enabled } = await requireSink(tx, sink);
  const floor = await holdOutboxFloor(tx);
  const given = start === undefined ? undefined : await startOf(tx, start);
  await lockShards(tx, sink, ALL_SHARDS);
  const place = given ?? (await findRestart(tx, sink));
  if (place === undefined ? !enabled && (await standsBelow(tx, sink, floor)) : isBefore(place, floor)) throw await expired(tx, sink, floor);
  tx.changed(`relay:${sink}`);
  if (place !== undefined) {
    // Whoever relays loses the shards before anything is forgotten.
    const isForgotten = await forgetHeld(tx, sink, FORGET_HELD_MAX);
    if (!isForgotten) {
      await writeEnabled(tx, sink, false);
      await writeRestart(tx, sink, place);
      return { sink, enabled: false, changed: true, more: true };
    }
    await writeRestart(tx, sink, undefined);
    await restartShards(tx, sink, place);
  }
  if (!enabled || place !== undefined) await writeEnabled(tx, sink, true);
  return { sink, enabled: true, changed: !enabled || place !== undefined, more: false };
}

async function expired(tx: Tx, sink: string, floor: FeedPlace): Promise<CursorExpired> {
  const { storeId } = await readStore(tx);
  return new CursorExpired(`Events that ${sink} had not got may have been removed while it was disabled: enable it with a start.`, {
    oldestCursor: encodeFeedCursor(storeId, floor),
    reason: 'below-retention',
  });
}
