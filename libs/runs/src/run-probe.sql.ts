import { column, rows, sql, type Db, type Sql, type StreamProbe } from '@runplane/database';
import { feedProbe } from '@runplane/outbox';
import { requestProbes, sessionProbe } from '@runplane/sessions';
import { z } from 'zod';

/** What the hub asks while somebody waits for runs: where each stands, in one statement. */
const probeOfRuns = (kind: string, version: Sql): StreamProbe => ({
  kind,
  async versionsOf(on, keys) {
    const places = keys.map((key) => key.indexOf('/')); // a tenant id has no slash
    const found = await rows(
      on,
      z.object({ key: column.text, version: column.text }),
      sql`SELECT w.tenant_id || '/' || w.id AS "key", ${version} AS "version"
          FROM unnest(${keys.map((key, i) => key.slice(0, places[i]))}::text[], ${keys.map((key, i) => key.slice((places[i] ?? 0) + 1))}::text[]) AS w (tenant_id, id)
          JOIN runplane.runs r ON r.tenant_id = w.tenant_id AND r.id = w.id`,
    );
    return new Map(found.map((row) => [row.key, row.version]));
  },
});

const runProbe = probeOfRuns('run', sql`r.last_event_seq::text`);
/** For the runners that wait for commands: see commandStream. */
const commandProbe = probeOfRuns('commands', sql`r.last_command_seq::text || ' ' || r.status::text`);

/** Due dispatch intents: another count or another first one means work for a dispatcher. */
const dispatchProbe: StreamProbe = {
  kind: 'dispatch',
  async versionsOf(on, keys) {
    const [due] = await rows(
      on,
      z.object({ version: column.text }),
      sql`SELECT coalesce(min(id), '') || ':' || count(*)::text AS "version" FROM (
            SELECT id FROM runplane.dispatch_intents WHERE state IN ('pending', 'retry', 'dispatching') AND ready_at <= (SELECT runplane.app_now())
            ORDER BY ready_at, id LIMIT 100
          ) due`,
    );
    return new Map(keys.map((key) => [key, due?.version ?? '']));
  },
};

/**
 * Tells a store's hub how to look after runs, their commands, session logs, the feed, due dispatches and what is asked of people. Once per Db,
 * before anybody waits.
 */
export function registerRunProbes(db: Db): void {
  for (const probe of [runProbe, commandProbe, sessionProbe, feedProbe, dispatchProbe, ...requestProbes]) db.hub.addProbe(probe);
}
