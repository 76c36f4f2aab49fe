import { sql, type Db, type Sql } from '@runplane/database';

// What the outbox costs is measured against the same statement without it, made here and nowhere else.

const OUTBOX_PART = /,\s*out AS \(/;

/** The statement without the part that writes to the outbox; undefined where it has none. */
export function cutOutbox({ strings, values }: Sql): Sql | undefined {
  const first = strings.findIndex((text) => OUTBOX_PART.test(text));
  const opening = OUTBOX_PART.exec(strings[first] ?? '');
  if (opening === null) return undefined;
  const end = closingOf(strings, { text: first, at: opening.index + opening[0].length });
  const joined = (strings[first] ?? '').slice(0, opening.index) + (strings[end.text] ?? '').slice(end.at + 1);
  // A value stands behind the text of its number.
  return sql([...strings.slice(0, first), joined, ...strings.slice(end.text + 1)], ...values.slice(0, first), ...values.slice(end.text));
}

interface Place {
  readonly text: number;
  readonly at: number;
}

/** Where the parenthesis closes that is open at a place. */
function closingOf(strings: readonly string[], from: Place): Place {
  let open = 1;
  for (let text = from.text; text < strings.length; text += 1) {
    const chars = strings[text] ?? '';
    for (let at = text === from.text ? from.at : 0; at < chars.length; at += 1) {
      if (chars[at] === '(') open += 1;
      if (chars[at] === ')') open -= 1;
      if (open === 0) return { text, at };
    }
  }
  throw new Error('a part of the statement does not end');
}

/** The store handle whose appends write no outbox row, or, with `keep`, do: both are taken apart, so that both cost the client the same. */
export function cuttingOutbox(db: Db, { keep }: { keep: boolean }): Db {
  return {
    ...db,
    sql: {
      query: (statement) => {
        const cut = cutOutbox(statement);
        return db.sql.query(keep ? statement : (cut ?? statement));
      },
    },
  };
}
