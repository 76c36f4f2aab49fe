import { readFileSync } from 'node:fs';
import type pg from 'pg';
import { findViolations, INVARIANTS_FILE, useDatabase } from '@runplane/database/testing';
import { OF_QUEUE_TASKS } from './plants/queue-tasks';
import { OF_RELAYS } from './plants/relay';
import { OF_A_PRUNED_RUN, OF_RUNS, UNDER_AN_ENDED_RUN } from './plants/runs';
import { ASKED_OF_PEOPLE, OF_SESSION_LOGS } from './plants/session-log';
import { OF_SUBMISSIONS } from './plants/submissions';
import { makeWorld } from './world';

// Each check of tests/support/invariants.sql sees a violation that is planted past all guards, in a transaction that is rolled back.

const t = useDatabase({ checkInvariants: false });
let on: pg.Client;
beforeAll(async () => {
  on = await makeWorld(t);
});
afterAll(() => on.end());

test('a world that operations have made breaks nothing', async () => {
  expect(await findViolations(on)).toEqual([]);
});

/** One for each branch of the checker. */
const BRANCHES = [...OF_RUNS, ...OF_SESSION_LOGS, ...OF_SUBMISSIONS, ...OF_QUEUE_TASKS, ...OF_RELAYS];

test.each(
  [...BRANCHES, ...UNDER_AN_ENDED_RUN, ...ASKED_OF_PEOPLE, ...OF_A_PRUNED_RUN].map(
    (plant) => [plant.invariant, plant.says.source, plant] as const,
  ),
)('%s is reported: %s', async (_name, _says, planted) => {
  await on.query('BEGIN');
  try {
    await planted.plant();
    const violations = await findViolations(on);
    expect(violations.map(({ detail }) => detail).join('\n')).toMatch(planted.says);
    expect(new Set(violations.map(({ invariant }) => invariant))).toEqual(new Set([planted.invariant, ...(planted.also ?? [])]));
  } finally {
    await on.query('ROLLBACK');
  }
});

test('no check is left out', () => {
  const checks = [...readFileSync(INVARIANTS_FILE, 'utf8').matchAll(/^SELECT '([A-Z]+-\d)'/gm)].map((match) => match[1]);
  expect(checks.length).toBeGreaterThan(20);
  expect(BRANCHES.map(({ invariant }) => invariant).sort()).toEqual(checks.sort());
  expect(new Set(BRANCHES.map(({ says }) => says.source)).size).toBe(checks.length);
});
