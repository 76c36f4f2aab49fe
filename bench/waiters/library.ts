import { streamRunEvents, waitForRunEvents } from '@runplane/runs';
import { TENANT } from '../append/claimed-turns';
import { isPoll, latencyOf, runOf, type WaitersCase, type WaitersSetting } from './waiters-case';

/** waitForRunEvents and streamRunEvents in this process, as an embedding program has them. */
export function prepareLibrary({ db, waiters, runIds, afterSeq, onEvent }: WaitersSetting): Promise<WaitersCase> {
  const stops: AbortController[] = [];
  let running: Promise<void>[] = [];

  const poll = async (runId: string, signal: AbortSignal): Promise<void> => {
    for (let seen = afterSeq; !signal.aborted;) {
      const { events } = await waitForRunEvents(db, { tenantId: TENANT, runId, afterSeq: seen, waitMs: 30_000, signal });
      for (const event of events) onEvent(latencyOf(event.payload['text']));
      seen = events.at(-1)?.seq ?? seen;
    }
  };
  const follow = async (runId: string, signal: AbortSignal): Promise<void> => {
    for await (const item of streamRunEvents(db, { tenantId: TENANT, runId, afterSeq, signal })) {
      if ('events' in item) for (const event of item.events) onEvent(latencyOf(event.payload['text']));
    }
  };
  const begin = (n: number): Promise<void> => {
    const stop = new AbortController();
    stops.push(stop);
    return (isPoll(n) ? poll : follow)(runOf(runIds, n), stop.signal);
  };
  return Promise.resolve({
    start: () => {
      running = Array.from({ length: waiters }, (_, n) => begin(n));
      return Promise.resolve();
    },
    close: async () => {
      for (const stop of stops) stop.abort();
      await Promise.all(running);
    },
  });
}
