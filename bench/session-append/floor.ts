import { randomUUID } from 'node:crypto';
import { countRows, type AppendCase, type CaseSetting } from '../support/append-case';
import { openPlainPool } from '../support/store';
import { turnsOf, type TurnEvent } from './turn-events';

// The least that durable events cost: one prepared INSERT of their rows, committed by itself. No guard, no counter, no outbox, no view; the
// caller numbers by itself.

const COLUMNS = ['tenant_id', 'session_id', 'sequence', 'event_id', 'type', 'turn_id', 'step_id', 'data', 'time', 'created_at'];

export async function prepareFloor({ url, admin, callers }: CaseSetting, perCall: number): Promise<AppendCase> {
  await admin.query('CREATE SCHEMA IF NOT EXISTS bench_session_floor');
  await admin.query('CREATE TABLE IF NOT EXISTS bench_session_floor.session_events (LIKE runplane.session_events INCLUDING ALL)');
  const pool = openPlainPool(url, callers);
  const sessionIds = Array.from({ length: callers }, () => `session-${randomUUID()}`);
  const insert = insertOf(perCall);
  return {
    callers: sessionIds.map((sessionId) => {
      const take = turnsOf();
      let next = 0;
      return () => {
        const values = take(perCall).flatMap((event) => valuesOf(sessionId, next++, event));
        return pool.query({ name: 'floor', text: insert, values });
      };
    }),
    rowsWritten: () =>
      countRows(
        admin,
        {
          'bench_session_floor.session_events': 'SELECT count(*) AS n FROM bench_session_floor.session_events WHERE session_id = ANY ($1)',
        },
        [sessionIds],
      ),
    close: () => pool.end(),
  };
}

function insertOf(rows: number): string {
  const places = COLUMNS.length - 2;
  const row = (_: unknown, i: number): string =>
    `(${Array.from({ length: places }, (_, k) => `$${i * places + k + 1}`).join(', ')}, now(), now())`;
  return `INSERT INTO bench_session_floor.session_events (${COLUMNS.join(', ')}) VALUES ${Array.from({ length: rows }, row).join(', ')}`;
}

const valuesOf = (sessionId: string, sequence: number, { type, turnId, stepId, data }: TurnEvent): unknown[] => [
  'bench',
  sessionId,
  sequence,
  randomUUID(),
  type,
  turnId,
  stepId,
  JSON.stringify(data),
];
