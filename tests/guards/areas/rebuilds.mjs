// Rebuilds of the views of session logs.
import { SESSIONS, races, rebuilds } from '../places.mjs';

const REBUILD = `${SESSIONS}/rebuild`;

export const rebuildGuards = [
  {
    name: 'a page of a rebuild commits its place with its rows',
    file: `${REBUILD}/rebuild-session.ts`,
    text: 'await writeProgress(tx, claim, { ...progress, leaseMs });',
    replacement: 'await writeProgress(tx, claim, { ...progress, throughSequence: Math.max(-1, progress.throughSequence - 3), leaseMs });',
    test: rebuilds('makes every view as the log says'),
  },
  {
    name: 'who was taken over folds and switches nothing more',
    file: `${REBUILD}/session-rebuild.sql.ts`,
    text: "AND owner = ${claim.owner}::text AND epoch = ${claim.epoch}::int AND state = 'running' FOR NO KEY UPDATE",
    replacement: 'FOR NO KEY UPDATE',
    test: rebuilds('is done by one at a time'),
  },
  {
    name: 'a switch does not loop over a log for each of its rows',
    file: `${REBUILD}/shadow-views.sql.ts`,
    text: "await setNestedLoops(tx, 'off')",
    replacement: "await setNestedLoops(tx, 'on')",
    test: rebuilds('puts a long log in place without going through all of it'),
  },
  {
    name: 'the switch holds the head',
    file: `${REBUILD}/rebuild-session.ts`,
    text: '{ log, pages }), { underLock: true }',
    replacement: '{ log, pages }), {}',
    test: races('session-rebuild', 'that holds the head is waited for'),
  },
  {
    name: 'sweepers leave the rows of a rebuild alone',
    file: `${REBUILD}/shadow-views.sql.ts`,
    text: 'sql`ascii(tenant_id) >= 32`',
    replacement: 'sql`true`',
    test: rebuilds('has rows that no sweeper takes for live ones'),
  },
  {
    name: 'submissions without an event stay',
    file: `${REBUILD}/shadow-views.sql.ts`,
    text: "foreign: 'NOT from_event',",
    replacement: '',
    test: rebuilds('leaves claims, their counts'),
  },
  {
    name: 'counts of claims stay',
    file: `${REBUILD}/shadow-views.sql.ts`,
    text: "kept: { attempts: 'o.attempts', claim_epoch: 'o.claim_epoch' }",
    replacement: "kept: { attempts: 's.attempts', claim_epoch: 's.claim_epoch' }",
    test: rebuilds('leaves claims, their counts'),
  },
  {
    name: 'views of other programs stay',
    file: `${REBUILD}/shadow-views.sql.ts`,
    text: 'return sql`AND ${rawSql(of)}.key = ANY (${[...viewKeys]}::text[])`;',
    replacement: 'return sql`AND ${rawSql(of)}.key <> ALL (${[]}::text[])`;',
    test: rebuilds('is built where it is missing'),
  },
  {
    name: 'the background leaves views of newer rules alone',
    file: `${REBUILD}/stale-views.sql.ts`,
    text: 'WHERE views_version < ${olderThan}::int AND deleted_at IS NULL ${behind}',
    replacement: 'WHERE views_version <> ${olderThan}::int AND deleted_at IS NULL ${behind}',
    test: rebuilds('finds views of older rules'),
  },
  {
    name: 'an append never raises the version of views',
    file: `${SESSIONS}/append-statement.sql.ts`,
    text: 'views_version = least(t.views_version, ${stale ? 0 : VIEWS_VERSION}::int)',
    replacement: 'views_version = ${stale ? 0 : VIEWS_VERSION}::int',
    test: rebuilds('finds views of older rules'),
  },
  {
    name: 'a log without its end is not taken for whole',
    file: `${REBUILD}/rebuild-session.ts`,
    text: 'if (events.length === 0 && progress.throughSequence < log.lastSequence)',
    replacement:
      'if (events.length === 0 && progress.throughSequence < log.lastSequence) return { ...progress, throughSequence: log.lastSequence }; if (false)',
    test: rebuilds('finds views of older rules'),
  },
  {
    name: 'a rebuild that has switched is no answer to who asks later',
    file: `${REBUILD}/session-rebuild.sql.ts`,
    text: "(r.state = 'completed' OR r.switched_at IS NOT NULL)",
    replacement: "(r.state = 'completed')",
    test: rebuilds('that was given back behind its switch'),
  },
  {
    name: 'a rebuild by older rules leaves the view of a team’s newer ones',
    file: `${REBUILD}/shadow-views.sql.ts`,
    text: 'WHERE v.version > k.version`',
    replacement: 'WHERE false`',
    test: races('session-rebuild', 'the newer one stays'),
  },
];
