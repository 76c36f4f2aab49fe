import { CursorExpired, defineCursor, LIST_ROWS_DEFAULT, LIST_ROWS_MAX } from '@runplane/contracts';
import { column } from '@runplane/database';
import { z } from 'zod';

// Rows in the order of their last changes. A change is numbered by its transaction (`changed_tx`, never below the number before) and is shown only below
// the horizon, the oldest transaction that is still open: so no change can appear at or before a place that has been read. The cursor is the place of the
// last row returned, never the horizon: see docs/adr/0016.

/** Where a row stands among the changes of its kind. */
export interface ChangePlace {
  readonly changedTx: bigint;
  readonly id: string;
}

export interface ChangePage<Row> {
  readonly storeId: string;
  readonly horizon: bigint;
  readonly changes: readonly { readonly place: ChangePlace; readonly row: Row }[];
}

/** What is read of the changes: those behind a place, or with `from: 'end'` the last one alone. */
export interface ChangesWanted {
  readonly after: ChangePlace;
  readonly limit: number;
  readonly from: 'place' | 'end';
}

/** Columns that every row of such a page has. Where nothing has changed one row has nothing else. */
export const CHANGE_HEAD = { storeId: column.text, horizon: column.bigint };

/** `toChange`: undefined for the row that has nothing but the head. */
export function changePage<Found extends { readonly storeId: string; readonly horizon: bigint }, Row>(
  found: readonly Found[],
  toChange: (row: Found) => ChangePage<Row>['changes'][number] | undefined,
): ChangePage<Row> {
  const [head] = found;
  if (head === undefined) throw new Error('runplane.store has no row: run the migrations');
  return { storeId: head.storeId, horizon: head.horizon, changes: found.flatMap((row) => toChange(row) ?? []) };
}

export interface ChangesAfter {
  /** A cursor of an earlier page, `start` (default), or `now`: behind the last change that is there. */
  readonly after?: string | undefined;
  readonly limit?: number | undefined;
}

/** A page of changes; `cursor` to go on from, also when it is empty; `more`: read on at once. */
export interface ListedChanges<Row> {
  readonly rows: Row[];
  readonly cursor: string;
  readonly more: boolean;
}

const BIGINT_MAX = 2n ** 63n - 1n;
const START: ChangePlace = { changedTx: -1n, id: '' };
const number = z
  .string()
  .regex(/^\d{1,19}$/)
  .refine((digits) => /^\d+$/.test(digits) && BigInt(digits) <= BIGINT_MAX);
const id = z
  .string()
  .max(200)
  .regex(/^[^\0]*$/);

interface CursorTexts {
  readonly store: string;
  readonly tx: string;
  readonly [idName: string]: string;
}

/**
 * Makes the list of changes of one kind of rows, in whose cursors the id has a name of its own.
 *
 * Errors    InvalidCursor; CursorExpired (another store, or a copy that was not rebased).
 */
export function defineChangeList(kind: string, idName: string) {
  const shape = z.strictObject({ store: z.string(), tx: number, [idName]: id }).transform((parts) => parts as CursorTexts);
  const cursors = defineCursor<CursorTexts>(kind, shape);
  const encode = (storeId: string, { changedTx, id: last }: ChangePlace): string =>
    cursors.encode({ store: storeId, tx: String(changedTx < 0n ? 0n : changedTx), [idName]: last });

  return async <Row>(
    { after = 'start', limit = LIST_ROWS_DEFAULT }: ChangesAfter,
    read: (wanted: ChangesWanted) => Promise<ChangePage<Row>>,
  ): Promise<ListedChanges<Row>> => {
    if (after === 'now') {
      const { storeId, changes } = await read({ after: START, limit: 1, from: 'end' });
      return { rows: [], cursor: encode(storeId, changes.at(-1)?.place ?? START), more: false };
    }
    const rowsMax = Math.min(Math.max(limit, 1), LIST_ROWS_MAX);
    const cursor = after === 'start' ? undefined : cursors.decode(after);
    const place = cursor === undefined ? START : { changedTx: BigInt(cursor.tx), id: cursor[idName] ?? '' };
    const { storeId, horizon, changes } = await read({ after: place, limit: rowsMax, from: 'place' });
    if (cursor !== undefined && (cursor.store !== storeId || place.changedTx > horizon)) {
      throw new CursorExpired('The cursor belongs to another store: read again from data.oldestCursor.', {
        oldestCursor: encode(storeId, START),
        reason: 'other-store',
      });
    }
    return {
      rows: changes.map(({ row }) => row),
      cursor: encode(storeId, changes.at(-1)?.place ?? place),
      more: changes.length === rowsMax,
    };
  };
}
