import { freeText, parseInput, redactError } from '@runplane/contracts';
import { inKeyOrder, keyOf, SKIPPED } from '../publish-outcomes';
import { failed, type FailureReason, type Publisher, type PublishOptions, type PublishOutcome, type PublishRecord } from '../publisher';
import type { Delivery } from './delivery';
import { addressRule } from './guarded-lookup';
import { openAgent, postMessage, type Answer } from './post-message';
import { outcomeOfStatus } from './webhook-answers';
import { webhookBody, webhookHeaders } from './webhook-message';
import { WebhookOptions } from './webhook-options';

const ERROR_CODE_POINTS_MAX = 300;

export interface WebhookHooks {
  /** Told once per call what was tried, before the call resolves. What it throws is its own affair: deliveries are sent all the same. */
  readonly onDeliveries?: ((deliveries: readonly Delivery[]) => Promise<void>) | undefined;
}

/**
 * A publisher that posts each event to an endpoint, signed by the Standard Webhooks scheme. The events of a key go one after another, several keys at
 * the same time; after a failure of the endpoint, or when the call's time is half over, no further event is begun. Redirects are not followed, and addresses that are not public not reached.
 *
 * Byte-identical is the body; `webhook-timestamp` and the signature over it are the try's own, as the scheme asks.
 *
 * Errors    InvalidRequest for options that are not valid. What goes wrong later is in the outcomes, without a secret.
 * Source    docs/relay.md#webhooks
 */
export function openWebhookPublisher(given: WebhookOptions, { onDeliveries }: WebhookHooks = {}): Publisher {
  const options = parseInput(WebhookOptions, given);
  const url = new URL(options.url);
  const agent = openAgent(url, options.keysAtOnce);
  const passes = addressRule(options.allowedRanges);
  const closing = new AbortController();
  const underWay = new Set<Promise<unknown>>();

  async function post(record: PublishRecord, stop: CallEnd): Promise<{ outcome: PublishOutcome; status: number | null }> {
    const requestEnd = AbortSignal.timeout(options.requestTimeoutMs);
    const body = webhookBody(record, options);
    const headers = webhookHeaders(record.eventId, body, { secrets: options.secrets, now: new Date() });
    try {
      const answer = await postMessage(url, { body, headers, agent, passes, signal: AbortSignal.any([stop.signal, requestEnd]) });
      return { outcome: outcomeOfStatus(answer.status, textOf(answer)), status: answer.status };
    } catch (error) {
      const reason = stop.reason ?? (requestEnd.aborted ? 'timed_out' : 'unavailable');
      return { outcome: failed(reason, redactError(error, ERROR_CODE_POINTS_MAX)), status: null };
    }
  }

  async function publishAll(records: readonly PublishRecord[], stop: CallEnd): Promise<PublishOutcome[]> {
    const outcomes = records.map(() => SKIPPED);
    const deliveries: Delivery[] = [];
    const queues = [...indicesByKey(records)];
    let hasFailed = false;

    const sendKey = async (indices: readonly number[]): Promise<void> => {
      for (const index of indices) {
        const record = records[index];
        if (record === undefined) return;
        if (stop.reason === 'stopped') {
          outcomes[index] = failed(stop.reason, 'stopped');
          return;
        }
        // Skipped: neither another event's failure nor a lack of time says anything about this one.
        if (hasFailed || performance.now() >= stop.beginsUntil) return;
        const startedAt = performance.now();
        const { outcome, status } = await post(record, stop);
        deliveries.push({ record, outcome, status, durationMs: Math.round(performance.now() - startedAt) });
        outcomes[index] = outcome;
        if (outcome.kind === 'failed') hasFailed = true;
        if (outcome.kind !== 'sent') return;
      }
    };
    const worker = async (): Promise<void> => {
      for (let indices = queues.shift(); indices !== undefined; indices = queues.shift()) await sendKey(indices);
    };
    await Promise.all(Array.from({ length: Math.min(options.keysAtOnce, queues.length) }, worker));
    if (deliveries.length > 0) await onDeliveries?.(deliveries).catch(() => undefined);
    return inKeyOrder(records, outcomes);
  }

  return {
    async publish(records, { timeoutMs, signal }: PublishOptions) {
      const { requestTimeoutMs } = options;
      const stop = callEnd({ timeoutMs, requestTimeoutMs }, [closing.signal, ...(signal === undefined ? [] : [signal])]);
      const call = publishAll(records, stop);
      underWay.add(call);
      return await call.finally(() => {
        underWay.delete(call);
        stop.leave();
      });
    },
    async close() {
      closing.abort();
      await Promise.allSettled(underWay);
      agent.destroy();
    },
  };
}

/** When a call is over: `signal` aborts, and `reason` says why. */
interface CallEnd {
  readonly signal: AbortSignal;
  readonly reason: FailureReason | undefined;
  /** No request begins later: what is left is for the answers. On the clock of performance.now. */
  readonly beginsUntil: number;
  /** When the call has ended: takes what it has left at its signals away. */
  leave(): void;
}

function callEnd({ timeoutMs, requestTimeoutMs }: { timeoutMs: number; requestTimeoutMs: number }, stops: readonly AbortSignal[]): CallEnd {
  const late = AbortSignal.timeout(Math.max(1, Math.ceil(timeoutMs)));
  // By hand, since the sources last as long as a relay: they would keep a trace of every signal that AbortSignal.any makes of them.
  const stopping = new AbortController();
  const onStop = (): void => {
    stopping.abort();
  };
  for (const source of stops) source.addEventListener('abort', onStop);
  if (stops.some(({ aborted }) => aborted)) onStop();
  const stop = stopping.signal;
  return {
    signal: AbortSignal.any([late, stop]),
    beginsUntil: performance.now() + timeoutMs - Math.min(requestTimeoutMs, timeoutMs / 2),
    get reason() {
      if (stop.aborted) return 'stopped';
      return late.aborted ? 'timed_out' : undefined;
    },
    leave() {
      for (const source of stops) source.removeEventListener('abort', onStop);
    },
  };
}

const textOf = ({ status, text }: Answer): string => freeText(`HTTP ${status}${text === '' ? '' : `: ${text}`}`, ERROR_CODE_POINTS_MAX);

function indicesByKey(records: readonly PublishRecord[]): Iterable<readonly number[]> {
  const indices = new Map<string, number[]>();
  for (const [index, record] of records.entries()) {
    const ofKey = indices.get(keyOf(record)) ?? [];
    ofKey.push(index);
    indices.set(keyOf(record), ofKey);
  }
  return indices.values();
}
