// Claims of submissions: epochs, times, limits, what is looked at again behind a lock.
import { races, SESSIONS } from '../places.mjs';

const QUEUE = 'libs/queue/src';
const claimText = `${QUEUE}/submission-claim.sql.ts`;
const holdText = `${QUEUE}/submission-hold.sql.ts`;
const claims = (name) => ({ file: `${QUEUE}/submissions.int.spec.ts`, name });
const met = (name) => races('submission-claims', name);

const endsText = `${SESSIONS}/end-together.sql.ts`;
const endsMany = claims(
  'ends many of sessions with one statement, which writes what the end of one writes, and passes over what it must not end',
);

export const submissionClaimGuards = [
  {
    name: 'of many ends each needs a claim that lives',
    file: endsText,
    text: 'AND x.expires_at > x.now',
    replacement: '',
    test: endsMany,
  },
  {
    name: 'of many ends each names the epoch of its claim',
    file: endsText,
    text: 'AND x.claim_epoch = x.claim',
    replacement: '',
    test: endsMany,
  },
  {
    name: 'of many ends each is of a log that has not moved',
    file: endsText,
    text: 'x.last_sequence = x.read_sequence::bigint AND',
    replacement: '',
    test: endsMany,
  },
  {
    name: 'ends that a view of a team follows are appended one by one',
    file: `${SESSIONS}/end-submissions.ts`,
    text: 'if (wanted.some(({ events }) => touchedBy(projectionsOf(db), events).length > 1)) return new Set();',
    replacement: '',
    test: endsMany,
  },
  {
    name: 'a claim of a submission has a greater epoch than the one before',
    file: claimText,
    text: 'epoch = h.epoch + 1, attempts = h.attempts + 1',
    replacement: 'attempts = h.attempts + 1',
    test: claims('that has ended passes to the next claimer under a greater epoch'),
  },
  {
    name: 'a submission is claimed so often and no more',
    file: claimText,
    text: 'const isDue = sql`h.attempts < ${bound(SUBMISSION_ATTEMPTS_MAX)} AND',
    replacement: 'const isDue = sql`h.attempts < 1000 AND',
    test: claims('the tenth try was the last'),
  },
  {
    name: 'a claim for a lease owner looks at leases',
    file: claimText,
    text: 'x.lease_owner = ${leaseOwner}::text OR x.lease_owner IS NULL',
    replacement: 'x.lease_owner = ${leaseOwner}::text OR true',
    test: claims('for a lease owner looks at sessions whose lease is free or its own'),
  },
  {
    name: 'a claim for a lease owner in vain keeps a submission from nobody',
    file: claimText,
    text: 'FROM ${locked(false)} WHERE (${mayHideMore})))',
    replacement: 'FROM ${locked(false)}))',
    test: claims('for a lease owner looks at sessions whose lease is free or its own, and keeps the others from nobody'),
  },
  {
    name: 'a claim answers with no more than fits',
    file: claimText,
    text: 'AND coalesce(w.bytes_before, 0) < ${bound(PAGE_BYTES_MAX)}',
    replacement: '',
    test: claims('leaves the rest of a batch whose payloads would make the answer too large'),
  },
  {
    name: 'what was accepted while the claim was under way has its text read',
    file: `${QUEUE}/claim-submissions.ts`,
    text: 'if (submissionId !== null && source !== null && acceptedSequence !== null)',
    replacement: 'if (submissionId !== undefined)',
    test: met('takes what stands there now, with its text'),
  },
  {
    name: 'who keeps or gives back a submission names the epoch of the claim',
    file: holdText,
    text: 'AND j.epoch = g.epoch AND j.expires_at > j.now',
    replacement: 'AND j.expires_at > j.now',
    test: claims('that has ended passes to the next claimer under a greater epoch'),
  },
  {
    name: 'a claim of a submission that has ended is not given back or prolonged',
    file: holdText,
    text: 'AND j.epoch = g.epoch AND j.expires_at > j.now',
    replacement: 'AND j.epoch = g.epoch',
    test: met('a release that waits for the head is judged by the clock after the wait'),
  },
  {
    name: 'a release of a submission fences its holder',
    file: holdText,
    text: 'expires_at = NULL, epoch = t.epoch + 1,',
    replacement: 'expires_at = NULL,',
    test: claims('gives back what it has not begun'),
  },
  {
    name: 'a try that was not begun does not count',
    file: holdText,
    text: 'attempts = t.attempts - (h.error IS NULL)::int,',
    replacement: '',
    test: claims('gives back what it has not begun'),
  },
  {
    name: 'a renewal of submissions waits for nobody on the lane',
    file: `${QUEUE}/renew-submissions.ts`,
    text: 'await renewHeads(db.lane, { ...renewal, claims: left, wait: false });',
    replacement: 'await renewHeads(db.lane, { ...renewal, claims: left, wait: true });',
    test: met('a renewal does not wait for an end that is under way'),
  },
  {
    name: 'an end that is written by sight names the epoch of its claim',
    file: `${SESSIONS}/append-statement.sql.ts`,
    text: 'AND c.epoch = ${claim.epoch}::int AND c.expires_at > x.now',
    replacement: 'AND c.expires_at > x.now',
    test: claims('that has ended passes to the next claimer under a greater epoch'),
  },
  {
    name: 'an end that is written by sight needs a claim that lives',
    file: `${SESSIONS}/append-statement.sql.ts`,
    text: 'AND c.epoch = ${claim.epoch}::int AND c.expires_at > x.now',
    replacement: 'AND c.epoch = ${claim.epoch}::int',
    test: met('an end that waits for the head is judged by the clock after the wait'),
  },
  {
    name: 'what was tried too often is looked at again before it is failed',
    file: `${QUEUE}/submission-exhausted.sql.ts`,
    text: 'return head?.isOver === true ? head : undefined;',
    replacement: 'return head;',
    test: met('the failing of what was tried too often looks again'),
  },
  {
    name: 'a completed submission is not queued again',
    file: `${QUEUE}/requeue-submission.ts`,
    text: "if (!(error instanceof SubmissionClosed) || error.data.state !== 'pending') throw error;",
    replacement: 'if (!(error instanceof SubmissionClosed)) throw error;',
    test: claims('puts a failed submission behind all others'),
  },
  {
    name: 'epochs of claims go on in the next life of a session id',
    file: `${SESSIONS}/deletion.sql.ts`,
    text: '(SELECT max(claim_epoch) FROM runplane.submissions WHERE ${ofSession(key)})',
    replacement: 'NULL',
    test: claims('in the next life of its id have greater epochs'),
  },
  {
    name: 'what a waiting claimer who has gone has claimed is given back',
    file: `${QUEUE}/wait-for-claims.ts`,
    text: 'if (signal?.aborted === true && claimed.length > 0) {',
    replacement: 'if (signal?.aborted === true && claimed.length < 0) {',
    test: claims('that has gone leaves nothing claimed'),
  },
];
