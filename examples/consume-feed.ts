// A consumer of the feed that keeps a table of its own in step: every event at least once, in order, through any number of crashes.

import { createClient } from '@runplane/client';
import type { FeedEvent } from '@runplane/contracts';
import type pg from 'pg';

export interface Consumer {
  readonly url: string;
  readonly apiKey: string;
  readonly signal: AbortSignal;
}

/** Counts how the runs of each project end, until it is told to stop. Start it again under the same name, and it goes on where it was. */
export function countEndedRuns(table: pg.Client, { url, apiKey, signal }: Consumer): Promise<void> {
  const client = createClient({ url, apiKey });
  return client.consumeFeed({
    name: 'ended-runs',
    stream: 'run',
    types: ['terminal_status'],
    signal,
    handle: (events) => count(table, events),
    onFailure: ({ error, failures }) => console.error(`try ${failures}:`, error), // the same events come again
    onGap: () => 'skip', // what retention has removed while this program was away is not counted
  });
}

/** A page may come again after a crash between this and the commit: what is known by its event id is not counted twice. */
async function count(table: pg.Client, events: readonly FeedEvent[]): Promise<void> {
  await table.query(
    `INSERT INTO ended_runs (event_id, project_id, outcome)
     SELECT e ->> 'eventId', e ->> 'projectId', e -> 'data' ->> 'terminalStatus' FROM json_array_elements($1::json) e
     ON CONFLICT (event_id) DO NOTHING`,
    [JSON.stringify(events)],
  );
}
