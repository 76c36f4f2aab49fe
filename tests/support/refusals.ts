/** What callers of concurrent operations may hear under load. Everything else is a bug. */
export const DOCUMENTED_REFUSALS: ReadonlySet<string> = new Set([
  'run_closed',
  'run_cancelling',
  'run_claimed',
  'lease_lost',
  'lease_expired',
  'command_closed',
  'session_busy',
  'no_receivable_turn',
  'no_cancel_requested',
  'session_not_found', // before its first turn
  'run_not_found',
  'run_deleted', // retention was quicker
  'command_not_found',
  'storage_evicting',
  'storage_changed',
  'approval_not_found', // nobody has asked yet
  'approval_not_pending', // somebody was quicker
  'run_not_active', // its turn has ended
  'stale_dispatch_claim',
  'idempotency_conflict', // the key was used for something else
  'claim_lost', // the submission ended, was given back, or its time was over
  'submission_closed',
  'submission_not_found', // of a session that has just begun
  'submission_queue_full',
  'blocked_key_not_found', // it was sent meanwhile
  'blocked_key_moved',
  'feed_consumer_not_found', // it was deleted
  'feed_consumer_moved',
  'republish_running',
  'sink_disabled',
  'cursor_expired', // retention was quicker
  'transaction_conflict', // the session changed hands at every one of four looks
]);
