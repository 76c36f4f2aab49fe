import { openDb, type Db, type DbOptions } from '@runplane/database';
import { appendRunEvents, registerRunProbes } from '@runplane/runs';
import { countRows, type AppendCase, type CaseSetting } from '../support/append-case';
import { claimTurns, COUNT_OUR_ROWS, TENANT } from './claimed-turns';
import { payloadOf } from './payload';

// Through the library's door as the API uses it: input checks, JSON rules, redaction, every guard, the producer sequence, the outbox, the
// hints to waiters.

export const prepareOurs = doorOfRuns((callers) => ({ poolMax: Math.max(callers, 2) }));

/** Each call by a statement of its own, whatever arrives with it. */
export const prepareSingle = doorOfRuns((callers) => ({ poolMax: Math.max(callers, 2), coalesce: false }));

/** On a handle as the API opens it: ten connections for however many callers. */
export const prepareCoalesced = doorOfRuns(() => ({}));

/** `wrap` makes of the opened handle the one that appends. */
export function doorOfRuns(optionsFor: (callers: number) => Partial<DbOptions>, wrap: (db: Db) => Db = (db) => db) {
  return (setting: CaseSetting, perCall: number): Promise<AppendCase> => prepareDoor(setting, perCall, optionsFor(setting.callers), wrap);
}

async function prepareDoor(
  { url, admin, callers }: CaseSetting,
  perCall: number,
  options: Partial<DbOptions>,
  wrap: (db: Db) => Db,
): Promise<AppendCase> {
  const db = await openDb({ url, applicationName: `bench-append-${perCall}`, onError: () => undefined, ...options });
  registerRunProbes(db);
  await db.hub.start();
  const turns = await claimTurns(db, callers);
  const appending = wrap(db);
  return {
    callers: turns.map(({ runId, commandId, epoch }) => {
      let producerSequence = 0;
      return () => {
        producerSequence += 1;
        const events = Array.from({ length: perCall }, () => ({ type: 'assistant_message', payload: payloadOf(commandId) }));
        return appendRunEvents(appending, { tenantId: TENANT, runId, epoch, producerSequence, events });
      };
    }),
    rowsWritten: () => countRows(admin, COUNT_OUR_ROWS, [turns.map((turn) => turn.runId)]),
    close: () => db.close(),
  };
}
