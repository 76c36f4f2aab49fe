import { randomUUID } from 'node:crypto';
import type { Event } from '@event-driven-io/emmett';
import { getPostgreSQLEventStore } from '@event-driven-io/emmett-postgresql';
import { countRows, type AppendCase, type CaseSetting } from '../support/append-case';
import { openPlainPool } from '../support/store';
import { turnsOf, type TurnEvent } from './turn-events';

// Emmett as its documentation says for production: a pool that it is given, the schema made beforehand and not looked at again, the expected
// version named. No projection is registered. What our events carry besides type and data is metadata.

export async function prepareEmmett({ url, admin, callers }: CaseSetting, perCall: number): Promise<AppendCase> {
  const pool = openPlainPool(url, callers);
  const connectionOptions = { pool };
  await getPostgreSQLEventStore(url, { connectionOptions }).schema.migrate();
  const store = getPostgreSQLEventStore(url, { connectionOptions, schema: { autoMigration: 'None' } });
  const streams: string[] = [];
  // Streams are there before the measurement, as sessions are.
  const openStream = async (): Promise<{ stream: string; version: bigint }> => {
    const stream = `session-${randomUUID()}`;
    streams.push(stream);
    const { nextExpectedStreamVersion } = await store.appendToStream(stream, [{ type: 'session/created', data: { id: stream } }]);
    return { stream, version: nextExpectedStreamVersion };
  };
  const opened = await Promise.all(Array.from({ length: callers }, openStream));
  return {
    callers: opened.map(({ stream, version }) => {
      const take = turnsOf();
      let expectedStreamVersion = version;
      return async () => {
        const appended = await store.appendToStream(stream, take(perCall).map(eventOf), { expectedStreamVersion });
        expectedStreamVersion = appended.nextExpectedStreamVersion;
      };
    }),
    rowsWritten: () => countRows(admin, COUNT_ROWS, [streams]),
    close: async () => {
      await store.close();
      await pool.end();
    },
  };
}

const eventOf = ({ type, data, ...metadata }: TurnEvent): Event<string, Record<string, unknown>, Record<string, unknown>> => ({
  type,
  data,
  metadata,
});

/** Without the first event of each stream. */
const COUNT_ROWS = {
  emt_messages: 'SELECT count(*) - cardinality($1::text[]) AS n FROM emt_messages WHERE stream_id = ANY ($1)',
  'emt_streams.stream_position': 'SELECT sum(stream_position) - cardinality($1::text[]) AS n FROM emt_streams WHERE stream_id = ANY ($1)',
};
