// Views of the session log: folds, registered projections, reads, and what is removed by age.
import { channelFold, contextFold, SESSIONS, sessionViews, snapshotFold } from '../places.mjs';

const projections = `${SESSIONS}/projections`;

export const sessionViewsGuards = [
  {
    name: 'a message comes into a session once',
    file: `${projections}/channel.ts`,
    text: 'if (known === undefined) return;',
    replacement: 'return;',
    test: channelFold('a message that has come in already is refused with the place where it is'),
  },
  {
    name: 'a note does not grow without bound',
    file: `${projections}/context-notes.ts`,
    text: 'if (before + utf8Bytes(noteText(data)) <= NOTE_BYTES_MAX) return;',
    replacement: 'return;',
    test: contextFold('may not grow beyond their bound, whatever is stored'),
  },
  {
    name: 'a malformed splice does not become the word on the inbox',
    file: `${projections}/snapshot.ts`,
    text: "return [{}, 'the splice is beyond the queue'];",
    replacement: "return [{ hasInboxSplices: true }, 'the splice is beyond the queue'];",
    test: snapshotFold('is told, and input events still count'),
  },
  {
    name: 'an inbox takes so many inputs and no more',
    file: `${projections}/snapshot.ts`,
    text: 'if (anomaly !== INBOX_IS_FULL) return;',
    replacement: 'return;',
    test: snapshotFold('an inbox holds so many and no more'),
  },
  {
    name: 'no log makes a snapshot without bound',
    file: `${projections}/snapshot.ts`,
    text: 'if (overfills(before, given.length - deleteCount)) return [{}, INBOX_IS_FULL];',
    replacement: '',
    test: snapshotFold('a log that no guard has seen, with more inputs than an inbox holds'),
  },
  {
    name: 'nor one of open questions without bound',
    file: `${projections}/snapshot.ts`,
    text: "return ids.length >= OPEN_REQUESTS_MAX ? [{}, 'too many requests are open'] : [{ [open]: [...ids, id] }];",
    replacement: 'return OPEN_REQUESTS_MAX < 0 ? [{}] : [{ [open]: [...ids, id] }];',
    test: snapshotFold('a log that no guard has seen, with more inputs than an inbox holds'),
  },
  {
    name: 'a registered projection refuses no event',
    file: `${projections}/team.ts`,
    text: 'return failed(state, `event ${event.sequence}: ${redactError(error)}`);',
    replacement: 'throw error;',
    test: sessionViews('catches up with what others have appended, and goes stale instead of refusing an event'),
  },
  {
    name: 'older rules leave the views of newer ones alone',
    file: `${projections}/team.ts`,
    text: "if (view !== null && view.version > version) return { ...empty, standsStill: 'newer' };",
    replacement: '',
    test: sessionViews('catches up with what others have appended, and goes stale instead of refusing an event'),
  },
  {
    name: 'two projections do not share a key',
    file: 'libs/contracts/src/session-projections.ts',
    text: 'taken.add(key);',
    replacement: '',
    test: sessionViews('needs a key of its own'),
  },
  {
    name: 'a page of history is bounded by bytes',
    file: `${SESSIONS}/views/context-view.sql.ts`,
    text: '1 PRECEDING), 0) < ${bytesMax}::int AS near',
    replacement: '1 PRECEDING), 0) >= 0 AND ${bytesMax}::int > 0 AS near',
    test: sessionViews('a page of history is bounded by bytes, and goes on where it stopped'),
  },
  {
    name: 'a delivery that is open is not removed by age',
    file: `${SESSIONS}/views/prune-channels.sql.ts`,
    text: "is: sql`state <> 'queued'::runplane.delivery_state`",
    replacement: 'is: sql`true`',
    test: sessionViews('what is over in a channel is removed after its time, and the log keeps it'),
  },
  {
    name: 'a page of large rows is bounded by bytes',
    file: `${SESSIONS}/page.sql.ts`,
    text: ') p WHERE p.bytes_before < ${PAGE_BYTES_MAX}::int ) p`;',
    replacement: ') p WHERE ${PAGE_BYTES_MAX}::int > 0 ) p`;',
    test: sessionViews('a page of large rows ends at four megabytes'),
  },
  {
    name: 'a page that its bytes have cut goes on where it stopped',
    file: `${SESSIONS}/page.sql.ts`,
    text: 'const all = rows[0]?.found ?? rows.length;',
    replacement: 'const all = rows.length;',
    test: sessionViews('a page of large rows ends at four megabytes'),
  },
  {
    name: 'a part of a channel’s document is bounded by bytes',
    file: `${SESSIONS}/views/session-view.sql.ts`,
    text: ') t WHERE t.bytes_before < ${CHANNEL_STATE_BYTES_MAX}::int',
    replacement: ') t WHERE ${CHANNEL_STATE_BYTES_MAX}::int > 0',
    test: sessionViews('a page of large rows ends at four megabytes'),
  },
  {
    name: 'a view does not pass over events that it knows',
    file: `${projections}/team.ts`,
    text: 'const isOver = through !== null && !types?.some((type) => touches(registered, type));',
    replacement: 'const isOver = through !== null; void types;',
    test: sessionViews('that is too far behind the log is stale until it is rebuilt'),
  },
];
