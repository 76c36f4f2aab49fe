import { useDatabase } from '@runplane/database/testing';
import { assertWritten } from '../support/append-case';
import { APPEND_CASES } from './run';

const t = useDatabase();

// The cases are rivals only as long as each does the whole work: its rows are counted, and the invariants hold behind those in our tables.
test.each(APPEND_CASES.map((made) => [made.name, made.perCall, made] as const))(
  '%s writes every event, %i a call',
  async (name, perCall, { prepare }) => {
    const appendCase = await prepare({ url: t.url, admin: t.db.pool, callers: 2 }, perCall);
    try {
      for (let calls = 0; calls < 3; calls += 1) await Promise.all(appendCase.callers.map((call) => call()));
      const contestant = { name, perCall, callers: appendCase.callers, calls: 6 };
      const rows = await appendCase.rowsWritten();
      expect(Object.keys(rows)).not.toHaveLength(0);
      expect(() => assertWritten(contestant, rows)).not.toThrow();
      expect(() => assertWritten({ ...contestant, calls: 7 }, rows)).toThrow(/were acknowledged, found/);
    } finally {
      await appendCase.close();
    }
  },
);
