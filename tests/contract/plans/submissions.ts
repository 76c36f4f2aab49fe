import {
  claimSubmissions,
  explainSubmission,
  failExhaustedSubmissionsOnce,
  renewSubmissions,
  settleSubmissions,
  type ClaimSubmissionsInput,
} from '@runplane/queue';
import { endSubmission, listUnfinishedSubmissions } from '@runplane/sessions';
import type { Hot } from '../../support/plans';
import { ROWS, tenantId } from './store';

const logKey = { tenantId, sessionId: 'log' };

/** Submissions: a session each with due, claimed, put off and exhausted ones, and one session with a long queue. */
const submissionClaim = (over: Partial<ClaimSubmissionsInput>, index: string, more: Partial<Hot> = {}): Hot => ({
  call: (db) => claimSubmissions(db, { tenantId, owner: 'w', limit: 10, ...over } as ClaimSubmissionsInput),
  statement: /taken AS/,
  index,
  pagesMax: 600, // 10 heads with five indexes each, and their texts
  ...more,
});
const heldSubmissions = [15, 25, 35, 45].map((i) => ({ sessionId: `s${i}`, operationId: 'o', epoch: 2 }));
let endedOfLong = 0;
export const submissionStatements: Record<string, Hot> = {
  'claim submissions of a tenant': submissionClaim({}, 'submission_heads_of_tenant'),
  'claim one submission of a tenant': submissionClaim({ limit: 1 }, 'submission_heads_of_tenant', { pagesMax: 100 }),
  'claim submissions of a kind': submissionClaim({ kind: 'k1' }, 'submission_heads_of_tenant_kind'),
  'claim submissions of a kind that nobody knows': submissionClaim({ kind: 'none' }, 'submission_heads_of_tenant_kind', { pagesMax: 30 }),
  'claim submissions of a tenant that nobody knows': submissionClaim({ tenantId: 'nobody' }, 'submission_heads_of_tenant', {
    pagesMax: 30,
  }),
  'claim submissions of a kind over all tenants': submissionClaim({ tenantId: undefined, kind: 'k1' }, 'submission_heads_of_kind'),
  'claim submissions where the lease is free': submissionClaim({ leaseOwner: 'w' }, 'submission_heads_of_tenant', { pagesMax: 8_000 }), // 200 are put off
  'renew claims of submissions': {
    call: (db) => renewSubmissions(db, { tenantId, claims: heldSubmissions }),
    statement: /renewed AS/,
    index: 'submission_heads_pkey',
  },
  'give claims of submissions back': {
    call: (db) =>
      settleSubmissions(db, { tenantId, settlements: heldSubmissions.map((claim) => ({ ...claim, outcome: 'released' as const })) }),
    statement: /released AS/,
    index: 'submission_heads_pkey',
  },
  'find submissions that were tried too often': {
    call: (db) => failExhaustedSubmissionsOnce(db, { limit: 1 }),
    statement: /attempts >= 10 AND/,
    index: 'submission_heads_exhausted',
  },
  'end a submission of a session with a long queue': {
    call: (db) => endSubmission(db, { ...logKey, operationId: `o${(endedOfLong += 1)}`, end: { state: 'completed' } }),
    statement: /submission_moved AS/,
    index: 'submissions_unfinished',
    needsRows: true,
  },
  'list what is unfinished in a session with a long queue': {
    call: (db) => listUnfinishedSubmissions(db, { ...logKey, limit: 50 }),
    statement: /submissions s/,
    index: 'submissions_unfinished',
    pagesMax: 1_000, // the texts of 50, each by its key
  },
  'why a submission of a kind of which thousands are put off is where it is': {
    call: (db) => explainSubmission(db, { tenantId, sessionId: 's10', operationId: 'o' }),
    statement: /isKindServed/,
    index: 'submission_heads_of_tenant_kind',
    needsRows: true,
  },
  'why a submission behind a long queue is where it is': {
    call: (db) => explainSubmission(db, { ...logKey, operationId: `o${ROWS}` }),
    statement: /isKindServed/,
    index: 'submissions_unfinished',
    needsRows: true,
  },
};
