import type { BlockedKey, RelayCause, RelayExplanation } from '@runplane/contracts';
import type { ShardFacts } from './explain.sql';

type Why = Pick<RelayExplanation, 'cause' | 'isMoving' | 'sentence' | 'nextChangeInMs'>;

const seconds = (ms: number): string => (ms < 1_000 ? `${ms} ms` : `${Math.round(ms / 1_000)} s`);

/** Why the events of a shard, or of one key in it, are where they are: the first cause that holds. Pure. */
export function explainRelay(facts: ShardFacts, key: BlockedKey | undefined): Why {
  const { enabled, owner, leaseRemainingMs, relays, failures, lastError, nextTryInMs, oldestPendingForMs, isAboveHorizon } = facts;
  const why = (cause: RelayCause, isMoving: boolean, sentence: string, nextChangeInMs: number | null = null): Why => ({
    cause,
    isMoving,
    sentence,
    nextChangeInMs,
  });
  if (!enabled) return why('disabled', false, 'An operator has disabled the sink: nothing is sent until it is enabled again.');
  if (key !== undefined && key.state === 'parked') {
    const { heldCount, attempts, reason, lastError: error } = key;
    return why(
      'parked',
      false,
      `The sink has refused an event of this key ${attempts === 1 ? 'once' : `${attempts} times`} (${reason}: ${error}): it is parked, and ${heldCount} events wait until an operator retries or skips it.`,
    );
  }
  if (owner === null || leaseRemainingMs === null || leaseRemainingMs <= 0) {
    if (relays === 0) return why('no-relay', false, 'No relay serves the sink: start one that has it in its configuration.');
    return why('relay-lost', true, 'Its relay has gone, and another one is about to take the shard.', 1_000);
  }
  if (failures > 0) {
    return why(
      'sink-failing',
      false,
      `The sink has failed ${failures} times in a row at this shard (${lastError}); the next try comes in ${seconds(nextTryInMs)}.`,
      nextTryInMs,
    );
  }
  if (key !== undefined) return explainBlocked(key, why);
  if (oldestPendingForMs === null) return why('up-to-date', true, 'The sink has got everything.');
  if (isAboveHorizon) {
    return why(
      'held-back-by-writer',
      false,
      'Events are committed, but a transaction that began before them is still writing: they are sent when it has ended.',
    );
  }
  return why('catching-up', true, `The relay is at it; the oldest event waits for ${seconds(Math.max(oldestPendingForMs, 0))}.`, 0);
}

function explainBlocked(
  key: BlockedKey,
  why: (cause: RelayCause, isMoving: boolean, sentence: string, nextChangeInMs?: number | null) => Why,
): Why {
  const { attempts, failures, heldCount, reason, lastError, nextTryInMs } = key;
  const next = `the next try comes in ${seconds(nextTryInMs ?? 0)}, and ${heldCount} events wait`;
  if (failures > 0)
    return why(
      'sink-fails-at-key',
      false,
      `The sink fails at an event of this key, and at no other (${reason}: ${lastError}); ${next}.`,
      nextTryInMs,
    );
  if (attempts > 0)
    return why(
      'refused-will-retry',
      true,
      `The sink has refused an event of this key ${attempts} times (${reason}: ${lastError}); ${next}.`,
      nextTryInMs,
    );
  return why('catching-up', true, `The key was blocked and catches up: ${heldCount} events wait.`, nextTryInMs);
}
