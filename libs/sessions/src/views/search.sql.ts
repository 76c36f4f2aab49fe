import type { SearchMode } from '@runplane/contracts';
import { sql, type Sql } from '@runplane/database';

// How history is searched. There is no index of it: appends are the hot path, and a search looks at one session.

/** What words are looked for in; more would be refused by PostgreSQL in the worst case, or take it long. */
const WORDS_CHARS_MAX = 131_072;
/** What an excerpt is made of by PostgreSQL's own rules. */
const HEADLINE_CHARS_MAX = 16_384;
const BEFORE_CHARS = 80;
const EXCERPT_CHARS = 240;

const words = (query: string): Sql => sql`websearch_to_tsquery('simple', ${query}::text)`;

export function searchSql(mode: SearchMode, query: string): { matches: Sql; shown: Sql } {
  if (mode === 'literal') {
    return {
      matches: sql`strpos(h.content, ${query}::text) > 0`,
      shown: sql`substr(p.content, greatest(1, strpos(p.content, ${query}::text) - ${BEFORE_CHARS}::int), ${EXCERPT_CHARS}::int)`,
    };
  }
  return {
    matches: sql`to_tsvector('simple', left(h.content, ${WORDS_CHARS_MAX}::int)) @@ ${words(query)}`,
    shown: sql`ts_headline('simple', left(p.content, ${HEADLINE_CHARS_MAX}::int), ${words(query)}, 'StartSel="", StopSel="", MinWords=15, MaxWords=35')`,
  };
}
