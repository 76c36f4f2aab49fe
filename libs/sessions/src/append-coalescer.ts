import { coalescedBounds, coalescerOf, type Coalescer, type Db, type Verdict } from '@runplane/database';
import { appendTogether, type PlainAppend } from './append-together.sql';
import type { WrittenAppend } from './append-statement.sql';

/**
 * Where the appends of one process to the logs of several sessions meet: those that arrive together share a statement (docs/adr/0028). `alone`: by
 * the statement that waits for the head.
 *
 * A repeat after a lost answer is harmless where the append has an id: the head has moved by then if it was written, and who asks for the id finds it.
 */
export function appendCoalescer(
  db: Db,
  alone: (db: Db, append: PlainAppend) => Promise<WrittenAppend>,
): Coalescer<PlainAppend, WrittenAppend> {
  return coalescerOf(db, 'session-append', () => ({
    describe: ({ tenantId, sessionId, batch: { events, common } }) => ({
      lane: `${tenantId}/${sessionId}`,
      single: 'append', // its guard names the sequence that the one before it leaves
      last: false,
      rows: events.length + common.history.length,
      bytes: events.reduce((sum, { dataText }) => sum + dataText.length, 0),
    }),
    async together(appends) {
      const verdicts = await appendTogether(db.sql, appends);
      return verdicts.map((written): Verdict<WrittenAppend> =>
        written === undefined ? { kind: 'busy' } : { kind: 'answer', answer: written },
      );
    },
    alone: (append) => alone(db, append),
    isRepeatable: ({ appendId }) => appendId !== null,
    ...coalescedBounds(db),
  }));
}
