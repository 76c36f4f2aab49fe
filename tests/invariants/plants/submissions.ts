import { query, type Plant } from '../world';

// What waits before a session.

export const OF_SUBMISSIONS: readonly Plant[] = [
  {
    invariant: 'FIFO-1',
    says: /works on nothing, its oldest unfinished submission is op-1 at 1/,
    plant: query(`DELETE FROM runplane.submission_heads WHERE session_id = 's-queue'`),
  },
  {
    invariant: 'LOG-2',
    says: /submission op-0 of session s-queue is failed, the log tells submission.accepted and submission.completed/,
    plant: query(`UPDATE runplane.submissions SET state = 'failed' WHERE session_id = 's-queue' AND operation_id = 'op-0'`),
  },
  {
    invariant: 'FIFO-1',
    says: /submission op-0 of session s-queue stands at 7, where the log tells nothing/,
    plant: query(`UPDATE runplane.submissions SET place = 7 WHERE session_id = 's-queue' AND operation_id = 'op-0'`),
  },
  {
    invariant: 'OWN-1',
    says: /submission op-1 of session s-queue is claimed under epoch \d+ after 1 attempts, and may be claimed before the claim ends/,
    plant: query(
      `UPDATE runplane.submission_heads SET state = 'claimed', owner = 'w', attempts = 1, expires_at = now() + interval '1 minute' WHERE session_id = 's-queue'`,
    ),
  },
  {
    invariant: 'VIEW-1',
    says: /session s-queue counts 7 unfinished submissions, 1 of them turns; it has 1, 1/,
    plant: query(`UPDATE runplane.session_heads SET open_submissions = 7 WHERE session_id = 's-queue'`),
  },
];
