import { ensureTenant, type Db } from '@runplane/database';
import { claimSubmissions, settleSubmissions, type ClaimSubmissionsInput } from '@runplane/queue';
import { acceptSubmission, createSessions } from '@runplane/sessions';
import type pg from 'pg';
import { claimCase, type ClaimCase } from './claim-case';

// Claims of submissions: of sessions that each have something waiting, and of one session that has very many. What was claimed is given back, so that
// a claim in the empty store finds as much as one behind the backlog; in the session with many, each call ends one.

const many = { tenantId: 'many', sessionId: 'many' };
const tenantId = 'bench';
const ENDS = 'ends';
/** Sessions of that tenant, whose submissions one call ends. */
const ENDED = Array.from({ length: 100 }, (_, i) => `ends-${i}`);
const KIND = 'work';

type Claimed = Awaited<ReturnType<typeof claimSubmissions>>;

async function settle(db: Db, claimed: Claimed, outcome: 'released' | 'completed'): Promise<void> {
  for (const of of new Set(claimed.map((each) => each.tenantId))) {
    const settlements = claimed
      .filter((each) => each.tenantId === of)
      .map(({ sessionId, operationId, epoch }) => ({ sessionId, operationId, epoch, outcome }));
    const verdicts = await settleSubmissions(db, { tenantId: of, settlements });
    if (verdicts.some(({ verdict }) => verdict !== 'ok')) throw new Error('a claim of this benchmark was lost');
  }
}

const nothing = (): Promise<void> => Promise.resolve();
type Scope = ClaimSubmissionsInput extends infer Input ? (Input extends unknown ? Omit<Input, 'owner'> : never) : never;
const take =
  (scope: Scope) =>
  (db: Db): Promise<Claimed> =>
    claimSubmissions(db, { owner: 'bench', ...scope });
const ofSessions = (name: string, gets: number, scope: Scope): ClaimCase =>
  claimCase({
    name: `submissions: ${name}`,
    gets,
    before: nothing,
    take: take(scope),
    end: (db, claimed) => settle(db, [...claimed], 'released'),
  });

let accepted = 0;
/** One more in the session with many; behind a backlog it stands at its end, and the call takes the oldest. */
const acceptOne = async (db: Db): Promise<void> => {
  accepted += 1;
  await acceptSubmission(db, { ...many, operationId: `op-${accepted}`, submission: { kind: KIND, payload: { n: accepted } } });
};
const fromMany = take({ tenantId: many.tenantId, kind: KIND });

let held: Claimed = [];
/** Each session has one, and it is claimed. */
const claimOfEach = async (db: Db): Promise<void> => {
  accepted += 1;
  const submission = { operationId: `op-${accepted}`, submission: { kind: KIND, payload: { n: accepted } } };
  for (const sessionId of ENDED) await acceptSubmission(db, { tenantId: ENDS, sessionId, ...submission });
  held = await take({ tenantId: ENDS, limit: ENDED.length })(db);
};

export const HUNDRED_SUBMISSIONS = ofSessions('a hundred of a tenant', 100, { tenantId, limit: 100 });

export const SUBMISSION_CASES: readonly ClaimCase[] = [
  ofSessions('one of a tenant', 1, { tenantId }),
  ofSessions('one of a tenant and kind', 1, { tenantId, kind: KIND }),
  ofSessions('one of a kind, of all tenants', 1, { kind: KIND }),
  ofSessions('one whose session has no other writer', 1, { tenantId, kind: KIND, leaseOwner: 'bench' }),
  HUNDRED_SUBMISSIONS,
  ofSessions('idle poll of a kind', 0, { tenantId, kind: 'idle' }),
  claimCase({
    name: 'submissions: one of a session with many',
    gets: 1,
    before: nothing,
    take: fromMany,
    end: (db, claimed) => settle(db, [...claimed], 'released'),
  }),
  {
    name: 'submissions: the end of one of a session with many',
    gets: 1,
    before: acceptOne,
    call: async (db) => {
      const claimed = await fromMany(db);
      await settle(db, claimed, 'completed');
      return { got: claimed.length, after: nothing };
    },
  },
  {
    name: 'submissions: the ends of a hundred sessions',
    gets: ENDED.length,
    before: claimOfEach,
    call: async (db) => {
      await settle(db, held, 'completed');
      return { got: held.length, after: nothing };
    },
  },
];

/** Sessions with one submission each: enough for each call to find one. */
export async function prepareSubmissions(db: Db, admin: pg.Pool): Promise<void> {
  await ensureTenant(db.sql, tenantId);
  await ensureTenant(db.sql, many.tenantId);
  await ensureTenant(db.sql, ENDS);
  await createSessions(db).createSession({ tenantId: many.tenantId, header: { id: many.sessionId } });
  for (const id of ENDED) await createSessions(db).createSession({ tenantId: ENDS, header: { id } });
  await acceptOne(db);
  await fillSessions(admin, 'first', 200);
}

/** Sessions with a submission that waits, as rows alone. */
export async function fillSessions(admin: pg.Pool, name: string, sessions: number): Promise<void> {
  await admin.query(
    `INSERT INTO runplane.submissions (tenant_id, session_id, operation_id, submission_id, kind, payload, source, content_hash, hash_version, accepted_sequence, place)
     SELECT $1, $2 || i, 'op', 'sub', $3, '{"n":1}', '{}', 'h', 1, 0, 1 FROM generate_series(1, $4::int) i`,
    [tenantId, name, KIND, sessions],
  );
  await admin.query(
    `INSERT INTO runplane.submission_heads (tenant_id, session_id, operation_id, kind, place, ready_at)
     SELECT $1, $2 || i, 'op', $3, 1, now() FROM generate_series(1, $4::int) i`,
    [tenantId, name, KIND, sessions],
  );
  await admin.query('VACUUM ANALYZE runplane.submissions, runplane.submission_heads');
}

/** So many submissions of one session, behind what it has, as rows alone. */
export async function fillOneSession(admin: pg.Pool, submissions: number): Promise<void> {
  await admin.query(
    `INSERT INTO runplane.submissions (tenant_id, session_id, operation_id, submission_id, kind, payload, source, content_hash, hash_version, accepted_sequence, place)
     SELECT $1, $2, 'many-' || i, 'sub-' || i, $3, '{"n":1}', '{}', 'h', 1, 0, 1000000 + i FROM generate_series(1, $4::int) i`,
    [many.tenantId, many.sessionId, KIND, submissions],
  );
  await admin.query('VACUUM ANALYZE runplane.submissions, runplane.submission_heads');
}
