import { openDb } from '@runplane/database';
import { appendRunEvents, registerRunProbes } from '@runplane/runs';
import { countRows, payloadOf, type AppendCase, type CaseSetting } from './append-case';
import { claimTurns, COUNT_OUR_ROWS, TENANT } from './claimed-turns';

// Through the library's door as the API uses it: input checks, JSON rules, redaction, every guard, the producer sequence, the outbox, the
// hints to waiters.

export async function prepareOurs({ url, admin, callers }: CaseSetting, perCall: number): Promise<AppendCase> {
  const db = await openDb({ url, poolMax: Math.max(callers, 2), applicationName: `bench-ours-${perCall}`, onError: () => undefined });
  registerRunProbes(db);
  await db.hub.start();
  const turns = await claimTurns(db, callers);
  return {
    callers: turns.map(({ runId, commandId, epoch }) => {
      let producerSequence = 0;
      return () => {
        producerSequence += 1;
        const events = Array.from({ length: perCall }, () => ({ type: 'assistant_message', payload: payloadOf(commandId) }));
        return appendRunEvents(db, { tenantId: TENANT, runId, epoch, producerSequence, events });
      };
    }),
    rowsWritten: () => countRows(admin, COUNT_OUR_ROWS, [turns.map((turn) => turn.runId)]),
    close: () => db.close(),
  };
}
