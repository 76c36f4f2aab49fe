// What must not be removable without a test that notices: [file, text, replacement, test]. `npm run test:guards` replaces one text at a time in
// a copy of the working tree and demands that the named test fails. White space in the texts does not count; a text must stand in its file exactly
// once. The name of a test is the end or any part of its full name.

const RUNS = 'libs/runs/src';
const CLAIMS = 'libs/database/src/claims.sql.ts';
const MIGRATION = 'prisma/migrations/20261129140000_first_tables/migration.sql';

const races = (file, name) => ({ file: `tests/races/${file}.spec.ts`, name });
const runLife = (name) => ({ file: `${RUNS}/run-life.int.spec.ts`, name });
const decisions = (name) => ({ file: `${RUNS}/run-decisions.spec.ts`, name });
const sessions = (name) => ({ file: 'libs/sessions/src/session.int.spec.ts', name });
const feed = (name) => ({ file: 'libs/outbox/src/read-feed.int.spec.ts', name });
const claims = (name) => ({ file: 'libs/database/src/claims.int.spec.ts', name });
const schema = (name) => ({ file: 'tests/contract/schema.spec.ts', name });
const kubernetes = (name) => ({ file: 'tests/scenarios/kubernetes.spec.ts', name });
const reconciliation = (name) => ({ file: `${RUNS}/reconcile-runner-jobs.int.spec.ts`, name });
const lists = (name) => ({ file: `${RUNS}/list-runs.int.spec.ts`, name });
const eventPages = (name) => ({ file: `${RUNS}/event-pages.int.spec.ts`, name });
const access = (name) => ({ file: 'tests/contract/http-access.spec.ts', name });
const sessionControl = (name) => ({ file: 'libs/sessions/src/session-control.int.spec.ts', name });
const sessionRules = (name) => ({ file: 'libs/sessions/src/session-decisions.spec.ts', name });
const storage = (name) => ({ file: `${RUNS}/session-storage.int.spec.ts`, name });
const SESSIONS = 'libs/sessions/src';

export const GUARDS = [
  // Epochs: whoever was replaced is refused (OWN-1).
  {
    name: 'an append names the current epoch',
    file: `${RUNS}/append-run-events.ts`,
    text: 'AND claim_epoch = ${epoch}::int AND status',
    replacement: 'AND status',
    test: runLife('is held by one runner; a repeated claim keeps its epoch'),
  },
  {
    name: 'a finish and an acknowledgement name the current epoch',
    file: `${RUNS}/run-decisions.ts`,
    text: "if (epoch !== run.claimEpoch) return { kind: 'lease-lost' };",
    replacement: '',
    test: decisions('of another epoch has lost its lease, also on a claimed run'),
  },
  {
    name: 'a heartbeat names the current epoch',
    file: `${RUNS}/heartbeat.sql.ts`,
    text: "WHEN epoch <> named_epoch THEN 'lost'",
    replacement: '',
    test: runLife('is held by one runner; a repeated claim keeps its epoch'),
  },
  {
    name: 'a requeue fences before the next claim',
    file: `${RUNS}/sweep.ts`,
    text: 'claim_epoch = claim_epoch + 1, last_producer_seq = 0',
    replacement: 'last_producer_seq = 0',
    test: runLife('whose run may be repeated is replaced'),
  },
  {
    name: 'a claim gives the next epoch',
    file: `${RUNS}/claim.sql.ts`,
    text: 'claim_epoch = r.claim_epoch + 1, attempts',
    replacement: 'claim_epoch = greatest(r.claim_epoch, 1), attempts',
    test: races('claims', 'take an ended lease over once'),
  },
  {
    name: 'a settle names the current epoch',
    file: CLAIMS,
    text: 'AND epoch = ${held.epoch}::int',
    replacement: '',
    test: races('dispatch', 'under one name are told apart by their epochs'),
  },
  {
    name: 'giving a claim back fences its holder',
    file: CLAIMS,
    text: 'epoch = t.epoch + 1, ready_at = held.now +',
    replacement: 'ready_at = held.now +',
    test: claims('that gives back is fenced before the next claim'),
  },

  // Expiry: judged by the database's clock, after the lock (OWN-2).
  {
    name: 'a live lease is not taken over',
    file: `${RUNS}/claim.sql.ts`,
    text: "WHEN expires_at <= now AND attempts < max_attempts THEN 'takeover'",
    replacement: "WHEN attempts < max_attempts THEN 'takeover'",
    test: races('claims', 'get it once: the second sees a lease that is newer than its snapshot'),
  },
  {
    name: 'an ended lease is not prolonged',
    file: `${RUNS}/heartbeat.sql.ts`,
    text: "WHEN expires_at <= now THEN 'expired'",
    replacement: '',
    test: runLife('is held by one runner; a repeated claim keeps its epoch'),
  },
  {
    name: 'the sweep looks at the lease again',
    file: `${RUNS}/run-decisions.ts`,
    text: "(run.status !== 'claimed' && run.status !== 'cancelling') || holds(lease)",
    replacement: "run.status !== 'claimed' && run.status !== 'cancelling'",
    test: races('claims', 'leaves a run alone whose lease a heartbeat prolongs at that moment'),
  },
  {
    name: 'the sweep locks the lease that it judges',
    file: `${RUNS}/run-lease.sql.ts`,
    text: 'AND run_id = ${runId}::text FOR NO KEY UPDATE',
    replacement: 'AND run_id = ${runId}::text',
    test: races('claims', 'leaves a run alone whose lease a heartbeat prolongs at that moment'),
  },
  {
    name: 'a settle is refused after its lease, by the clock after the wait',
    file: CLAIMS,
    text: 'AND expires_at > now',
    replacement: '',
    test: claims('the clock is judged after the wait'),
  },
  {
    name: 'a live turn is not taken over',
    file: `${RUNS}/run-decisions.ts`,
    text: "return holds(lease) ? { kind: 'live', staleInMs: lease?.expiresInMs ?? null }",
    replacement: "return lease === null ? { kind: 'live', staleInMs: null }",
    test: races('admission', 'is not taken over when its runner claims it anew at that moment'),
  },
  {
    name: 'a cancel of a held run waits for its runner',
    file: `${RUNS}/run-decisions.ts`,
    text: 'if (immediate || !holds(lease)) return',
    replacement: 'if (immediate || lease !== null) return',
    test: runLife('of a claimed run waits for its runner, which learns of it and ends it'),
  },
  {
    name: 'a cancel of a session stops the turn that holds it now',
    file: `${RUNS}/cancel-session.ts`,
    text: 'if (session.activeRunId !== peek.activeRunId || session.activeCommandId !== peek.activeCommandId)',
    replacement: 'if (session.activeRunId === peek.activeCommandId)',
    test: races('cancels', 'that meets the admission of the next turn stops that turn, not the one before'),
  },
  {
    name: 'the end of a duration is judged again under the lock',
    file: `${RUNS}/sweep.ts`,
    text: 'if (run === undefined || !isDurationOver(run)) return false;',
    replacement: 'if (run === undefined) return false;',
    test: races('cancels', 'behind a cancel that was just asked for changes nothing'),
  },
  {
    name: 'a run whose time is over ends as that, not as lost',
    file: `${RUNS}/run-decisions.ts`,
    text: "if (isDurationOver(run)) return { kind: 'timeout' };",
    replacement: '',
    test: races('cancels', 'and the loss of its runner, both due at once, end a run once and as timeout'),
  },
  {
    name: 'a later claim does not start the time of a run anew',
    file: `${RUNS}/claim.sql.ts`,
    text: 'duration_deadline_at = coalesce(r.duration_deadline_at, d.now',
    replacement: 'duration_deadline_at = coalesce(NULL, d.now',
    test: { file: `${RUNS}/run-duration.int.spec.ts`, name: 'its time runs from the first claim, over all runners' },
  },
  {
    name: 'a run takes no more tool calls than it can close',
    file: `${RUNS}/append-run-events.ts`,
    text: 'if (open + calls <= OPEN_TOOL_CALLS_MAX) return;',
    replacement: 'if (open >= 0) return;',
    test: runLife('takes no more than it can close when it ends'),
  },
  {
    name: 'a command keeps its own cancel when its run is cancelled',
    file: `${RUNS}/command.sql.ts`,
    text: 'AND cancel_request_id IS NULL AND ${OPEN}',
    replacement: 'AND ${OPEN}',
    test: { file: `${RUNS}/cancels.int.spec.ts`, name: 'counts on the one counter of its run' },
  },
  {
    name: 'the end of a job concerns no run that was claimed',
    file: `${RUNS}/run-decisions.ts`,
    text: "if (run.status !== 'pending' || launch === undefined) return",
    replacement: 'if (launch === undefined) return',
    test: races('dispatch', 'that meets a claim of its run leaves the run to its runner'),
  },
  {
    name: 'the end of an older job concerns no run that was requeued',
    file: `${RUNS}/run-decisions.ts`,
    text: "each.state === 'dispatched' && each.jobId === jobId",
    replacement: 'each.jobId !== null',
    test: { file: `${RUNS}/fail-unclaimed-job.int.spec.ts`, name: 'it is launched again, as often as the run may be attempted' },
  },

  // Tenants (TEN-1).
  {
    name: 'a claim looks at the tenant',
    file: `${RUNS}/claim.sql.ts`,
    text: 'WHERE tenant_id = ${tenantId}::text AND id = ${runId}::text FOR NO KEY UPDATE',
    replacement: 'WHERE ${tenantId}::text IS NOT NULL AND id = ${runId}::text FOR NO KEY UPDATE',
    test: runLife('of another tenant is not found'),
  },
  {
    name: 'a read looks at the tenant',
    file: `${RUNS}/run.sql.ts`,
    text: 'return findRunWhere(on, sql`r.tenant_id = ${tenantId}::text AND r.id = ${runId}::text`);',
    replacement: 'return findRunWhere(on, sql`${tenantId}::text IS NOT NULL AND r.id = ${runId}::text`);',
    test: runLife('of another tenant is not found'),
  },
  {
    name: 'a lock looks at the tenant',
    file: `${RUNS}/run.sql.ts`,
    text: 'FROM runplane.runs WHERE tenant_id = ${tenantId}::text AND id = ${runId}::text FOR NO KEY UPDATE',
    replacement: 'FROM runplane.runs WHERE ${tenantId}::text IS NOT NULL AND id = ${runId}::text FOR NO KEY UPDATE',
    test: runLife('of another tenant is not found'),
  },
  {
    name: 'the feed of a tenant has its own events',
    file: 'libs/outbox/src/feed.sql.ts',
    text: 'WHERE ${tenantId ?? null}::text IS NULL OR tenant_id = ${tenantId ?? null}::text',
    replacement: 'WHERE ${tenantId ?? null}::text IS NULL OR true',
    test: feed('of a tenant gets its own events alone'),
  },
  {
    name: 'a session is found by its tenant',
    file: 'libs/sessions/src/session.sql.ts',
    text: 'WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text FOR NO KEY UPDATE',
    replacement: 'WHERE ${tenantId}::text IS NOT NULL AND session_id = ${sessionId}::text FOR NO KEY UPDATE',
    test: sessions('of another tenant is not found'),
  },

  // States: what has ended stays ended (LOG-3, END-1).
  {
    name: 'nothing is appended to an ended run',
    file: `${RUNS}/append-run-events.ts`,
    text: "AND status IN ('claimed', 'cancelling') ${producerGuard}",
    replacement: '${producerGuard}',
    test: races('endings', 'an append that comes second is refused and leaves a record'),
  },
  {
    name: 'an ended run is not finished again',
    file: `${RUNS}/run-decisions.ts`,
    text: "if (isFinalRun(run.status)) return { kind: 'closed' };",
    replacement: '',
    test: decisions('of the current epoch on a completed run'),
  },
  {
    name: 'an ended run is not cancelled',
    file: `${RUNS}/run-decisions.ts`,
    text: "if (isFinalRun(run.status)) return { kind: 'keep' };",
    replacement: '',
    test: races('endings', 'a finish that comes first stands; the cancel changes nothing'),
  },
  {
    name: 'an ended run is not swept',
    file: `${RUNS}/run-decisions.ts`,
    text: "(run.status !== 'claimed' && run.status !== 'cancelling') || holds(lease)",
    replacement: 'holds(lease)',
    test: races('endings', 'a finish that comes first is not undone by the sweep of lost runners'),
  },
  {
    name: 'an ended run takes no commands',
    file: `${RUNS}/create-command.ts`,
    text: 'if (isFinalRun(run.status)) throw runClosed(run);',
    replacement: '',
    test: races('admission', 'a command that meets the end of its run is refused'),
  },
  {
    name: 'an ended run is not claimed',
    file: `${RUNS}/claim.sql.ts`,
    text: "WHEN status IN ('completed', 'failed', 'blocked', 'cancelled') THEN 'closed'",
    replacement: '',
    test: races('claims', 'a cancel that comes first leaves nothing to claim'),
  },
  {
    name: 'a run is claimed within its attempts',
    file: `${RUNS}/claim.sql.ts`,
    text: "WHEN expires_at <= now AND attempts < max_attempts THEN 'takeover'",
    replacement: "WHEN expires_at <= now THEN 'takeover'",
    test: races('claims', 'do not take over an ended lease when the run’s attempts are used up'),
  },
  {
    name: 'a run is requeued within its attempts',
    file: `${RUNS}/run-decisions.ts`,
    text: "run.onRunnerLost === 'requeue' && run.attempts < run.maxAttempts",
    replacement: "run.onRunnerLost === 'requeue'",
    test: runLife('whose run may be repeated is replaced'),
  },
  {
    name: 'a failed dispatch leaves a claimed run to its runner',
    file: `${RUNS}/dispatch-intents.ts`,
    text: "if (run.status !== 'pending') await",
    replacement: "if (run.status === 'completed') await",
    test: races('dispatch', 'as failed for good, behind the claim of a runner from elsewhere'),
  },
  {
    name: 'the end of a run ends its lease',
    file: `${RUNS}/close-run.ts`,
    text: 'await deleteRunLease(tx, key);',
    replacement: '',
    test: runLife('is admitted, claimed, worked on and finished'),
  },
  {
    name: 'the end of a run ends its intents',
    file: `${RUNS}/close-run.ts`,
    text: 'await cancelOpenIntents(tx, key, { commandId: null, reason: ending.failureMessage ?? `run ${ending.status}` });',
    replacement: '',
    test: races('dispatch', 'behind a cancel of the run finds its claim gone'),
  },
  {
    name: 'the end of a run ends its tool calls',
    file: `${RUNS}/close-run.ts`,
    text: '[updateThread, closeToolCalls, closeCommands]',
    replacement: '[updateThread, closeCommands]',
    test: runLife('closes open tool calls when it ends'),
  },
  {
    name: 'the end of a turn answers the cancels of its steers',
    file: `${RUNS}/close-command.ts`,
    text: '[command, ...missed].flatMap',
    replacement: '[command].flatMap',
    test: races('endings', 'a steer that is cancelled and then missed leaves no request open'),
  },

  // Steers and busy sessions.
  {
    name: 'a turn that is being cancelled takes no steer',
    file: `${RUNS}/run-decisions.ts`,
    text: "if (run.status === 'cancelling' || turn.cancelRequestId !== null) return refuse('cancelling');",
    replacement: '',
    test: races('steers', 'a steer behind a cancel is refused; before it, it is taken, and missed at the end'),
  },
  {
    name: 'a steer goes to a live runner only',
    file: `${RUNS}/run-decisions.ts`,
    text: "return holds(lease) ? { kind: 'receive' } : refuse('runner-lost');",
    replacement: "return { kind: 'receive' };",
    test: decisions('for the turn of a claimed run whose runner is gone and whose dispatch has ended'),
  },
  {
    name: 'a steer starts over when its session has another turn',
    file: `${RUNS}/admit-steer.ts`,
    text: 'assertStillActive(session, active);',
    replacement: '',
    test: races('steers', 'a steer that comes second is refused'),
  },
  {
    name: 'twins of a steer are one',
    file: `${RUNS}/admit-steer.ts`,
    text: "throw new RestartTransaction('a twin of this steer has just been admitted');",
    replacement: '',
    test: races('steers', 'with one key are one; with other words the second is refused; with two keys they are two'),
  },
  {
    name: 'a steer that is open at a cancel is missed',
    file: `${RUNS}/close-run.ts`,
    text: "if (command.type === 'steer') return missedSteer(command.id);",
    replacement: "if (command.type === 'steer' && status !== 'cancelled') return missedSteer(command.id);",
    test: races('steers', 'a steer behind a cancel is refused; before it, it is taken, and missed at the end'),
  },
  {
    name: 'an interrupt leaves a live runner its time',
    file: `${RUNS}/settle-active-turn.ts`,
    text: 'if (isFinalRun(status)) return undefined;',
    replacement: 'if (isFinalRun(status) || true) return undefined;',
    test: races('steers', 'that comes first lets the runner say how it ended, and comes after it'),
  },
  {
    name: 'the same call stays a steer when the session is free again',
    file: `${RUNS}/admit-turn.ts`,
    text: "if (wanted.busyPolicy === 'steer' && known.type === 'steer') {",
    replacement: 'if (Date.now() < 0) {',
    test: {
      file: `${RUNS}/admit-steer.int.spec.ts`,
      name: 'becomes a steer of the open turn where it asks for that, and stays it; a free session admits it',
    },
  },

  // Locks.
  {
    name: 'a claim locks the run before it judges',
    file: `${RUNS}/claim.sql.ts`,
    text: 'AND id = ${runId}::text FOR NO KEY UPDATE',
    replacement: 'AND id = ${runId}::text',
    test: races('claims', 'get it once: the second sees a lease that is newer than its snapshot'),
  },
  {
    name: 'a claim whose lease row is older than its run looks again',
    file: `${RUNS}/claim.sql.ts`,
    text: "WHEN lease_epoch IS DISTINCT FROM claim_epoch THEN 'again'",
    replacement: '',
    test: races('claims', 'are one when they have one name'),
  },
  {
    name: 'an operation locks the run before it decides',
    file: `${RUNS}/run.sql.ts`,
    text: 'FROM runplane.runs WHERE tenant_id = ${tenantId}::text AND id = ${runId}::text FOR NO KEY UPDATE',
    replacement: 'FROM runplane.runs WHERE tenant_id = ${tenantId}::text AND id = ${runId}::text',
    test: races('endings', 'two cancels make one request'),
  },
  {
    name: 'dispatchers pass over what another one is claiming',
    file: CLAIMS,
    text: 'FOR NO KEY UPDATE SKIP LOCKED',
    replacement: 'FOR NO KEY UPDATE',
    test: races('dispatch', 'do not wait for an intent that the other is claiming'),
  },
  {
    name: 'a claim counts its attempts and stops at the limit',
    file: CLAIMS,
    text: 'AND attempts < ${count(table.attemptsMax)}',
    replacement: '',
    test: claims('passes a row over once its attempts are used up'),
  },
  {
    name: 'the lock order is asserted before a wait',
    file: 'libs/database/src/lock-order.ts',
    text: 'this.#assertAbove(rank, id);',
    replacement: '',
    test: races('lock-order', 'two operations of one transaction in the wrong order are refused'),
  },
  {
    name: 'the locks of a takeover come before the session’s',
    file: `${RUNS}/admit-turn.ts`,
    text: 'const active = await lockActiveTurn(tx, await findSession(tx, { tenantId, sessionId }));',
    replacement:
      'await requireLockedSession(tx, tenantId, sessionId); const active = await lockActiveTurn(tx, await findSession(tx, { tenantId, sessionId }));',
    test: races('lock-order', 'admitTurn that takes over takes its locks in order'),
  },

  // One open turn (TURN-1).
  {
    name: 'an admission starts over when the active turn changed',
    file: `${RUNS}/active-turn.ts`,
    text: 'if (session.activeRunId === (active?.run.id ?? null) && session.activeCommandId === (active?.command.id ?? null)) return;',
    replacement: 'return;',
    test: races('admission', 'two turns at once in a free session with two keys'),
  },
  {
    name: 'a second turn of a run finds the session busy',
    file: `${RUNS}/create-command.ts`,
    text: "if (wanted.type === 'turn' && session !== undefined) assertFree(session);",
    replacement: '',
    test: races('admission', 'the admission that comes first makes the session busy'),
  },
  {
    name: 'the active pair is not overwritten',
    file: 'libs/sessions/src/session.sql.ts',
    text: 'AND active_run_id IS NULL RETURNING',
    replacement: 'RETURNING',
    test: sessions('is given to a turn only while nobody has it'),
  },
  {
    name: 'only its own end takes the active pair from a turn',
    file: 'libs/sessions/src/session.sql.ts',
    text: 'AND active_run_id = ${runId}::text AND (${commandId}::text IS NULL',
    replacement: 'AND active_run_id IS NOT NULL AND (${commandId}::text IS NULL',
    test: sessions('is taken from a turn only by its own end'),
  },
  {
    name: 'a run that does not own the session leaves its thread alone',
    file: 'libs/sessions/src/session.sql.ts',
    text: 'AND (active_run_id IS NULL OR active_run_id = ${runId}::text)',
    replacement: '',
    test: sessions('guards the thread: a run that does not own the session leaves it alone'),
  },
  {
    name: 'a session belongs to one project and profile',
    file: `${RUNS}/admit-turn.ts`,
    text: 'assertBoundary(session, wanted.run);',
    replacement: '',
    test: runLife('repeated with its key is answered with what the first call made'),
  },
  {
    name: 'the database refuses a second open turn',
    file: MIGRATION,
    text: 'CREATE UNIQUE INDEX "commands_open_turn_per_session"',
    replacement: 'CREATE INDEX "commands_open_turn_per_session"',
    test: schema('commands_open_turn_per_session is unique over its columns'),
  },

  // Idempotency (IDEM-1).
  {
    name: 'a key with other content is a conflict',
    file: `${RUNS}/create-run.ts`,
    text: 'if (stored === wanted) return;',
    replacement: 'if (stored === wanted || wanted !== "") return;',
    test: races('admission', 'two turns at once in a new session with one key and other words'),
  },
  {
    name: 'a twin is looked for under the session’s lock',
    file: `${RUNS}/create-command.ts`,
    text: 'const twin = session && (await findByKey(tx, run, wanted));',
    replacement: 'const twin = undefined as CommandRow | undefined;',
    test: races('admission', 'with one key are a conflict of content, whoever comes first'),
  },
  {
    name: 'a batch is stored once',
    file: `${RUNS}/append-run-events.ts`,
    text: 'sql`AND last_producer_seq = ${sequence - 1}::int`',
    replacement: 'sql``',
    test: races('endings', 'a batch that is sent twice at once is stored once'),
  },
  {
    name: 'a batch number with other events is a conflict',
    file: `${RUNS}/append-run-events.ts`,
    text: 'if (!same || first === undefined',
    replacement: 'if (first === undefined',
    test: races('endings', 'two batches under one number: the second is refused'),
  },
  {
    name: 'the database refuses a second command with a key',
    file: MIGRATION,
    text: 'CREATE UNIQUE INDEX "commands_session_idempotency_key"',
    replacement: 'CREATE INDEX "commands_session_idempotency_key"',
    test: schema('commands_session_idempotency_key is unique over its columns'),
  },

  // The feed (FEED-1).
  {
    name: 'nothing is read beyond the horizon',
    file: MIGRATION,
    text: 'SELECT pg_snapshot_xmin(pg_current_snapshot())',
    replacement: 'SELECT pg_snapshot_xmax(pg_current_snapshot())',
    test: feed('is held back by a transaction that may still write below it'),
  },
  {
    name: 'a stream keeps its order in an old transaction',
    file: `${RUNS}/run-event.sql.ts`,
    text: 'last_tx = greatest(last_tx, ${String(floor)}::bigint, ${feedTx})',
    replacement: 'last_tx = greatest(${String(floor)}::bigint, ${feedTx})',
    test: races('feed-order', 'an append in an old transaction stands behind what was appended before it'),
  },
  {
    name: 'a session passes its feed number on',
    file: 'libs/sessions/src/session.sql.ts',
    text: 'if (session !== undefined) tx.feed.raise(session.lastTx);',
    replacement: '',
    test: races('feed-order', 'a run whose transaction is older than the end of the run before'),
  },
  {
    name: 'a run that does not hold its session leaves its feed number there',
    file: `${RUNS}/close-run.ts`,
    text: 'if (!freed) await writeFeedNumber(tx, { tenantId, sessionId });',
    replacement: '',
    test: races('feed-order', 'a run whose transaction is older than the end of the run before'),
  },
  {
    name: 'a cursor of another store is refused',
    file: 'libs/outbox/src/feed-cursor.ts',
    text: 'if (cursor.storeId === store.storeId && cursor.tx <= store.horizon) return;',
    replacement: 'if (cursor.tx <= store.horizon) return;',
    test: feed('of another store is refused with the place to go on from'),
  },
  {
    name: 'a cursor beyond the horizon is refused',
    file: 'libs/outbox/src/feed-cursor.ts',
    text: 'if (cursor.storeId === store.storeId && cursor.tx <= store.horizon) return;',
    replacement: 'if (cursor.storeId === store.storeId) return;',
    test: feed('beyond the horizon (a restored copy) is refused'),
  },
  {
    name: 'a filtered page says how far it has looked',
    file: 'libs/outbox/src/read-feed.ts',
    text: 'if (scanTx !== null && scanPosition !== null) return { place: { tx: scanTx, position: scanPosition }, more: true };',
    replacement: '',
    test: feed('of a quiet tenant looks at 10,000 rows a call'),
  },

  // What comes in.
  {
    name: 'only the server writes its own phases',
    file: 'libs/contracts/src/events.ts',
    text: "if (type === 'backend_status' && typeof phase === 'string' && isReservedPhase(phase)) throw reserved(type, phase);",
    replacement: '',
    test: { file: `${RUNS}/run-event-input.spec.ts`, name: 'only the server writes backend_status' },
  },
  {
    name: 'only the server writes the end of a run',
    file: 'libs/contracts/src/events.ts',
    text: "if (type === 'user_message' || type === 'terminal_status') throw reserved(type);",
    replacement: '',
    test: { file: `${RUNS}/run-event-input.spec.ts`, name: 'only the server writes terminal_status' },
  },
  {
    name: 'secrets are masked before they are stored',
    file: `${RUNS}/run-event-input.ts`,
    text: 'JSON.stringify(redactJson(checked))',
    replacement: 'JSON.stringify(checked)',
    test: { file: `${RUNS}/run-event-input.spec.ts`, name: 'secrets are masked before they are stored' },
  },
  {
    name: 'an event is about a command of its own run',
    file: `${RUNS}/append-run-events.ts`,
    text: '${producerGuard} ${commandsGuard}',
    replacement: '${producerGuard}',
    test: runLife('refuses events that only the server may write, and commands that are not its own'),
  },
  {
    name: 'refusals are recorded once a minute',
    file: `${RUNS}/record-refusal.ts`,
    text: 'if (await hasRecentRecord(tx, refusal, { phase: refusal.phase, epoch, everyMs: REFUSAL_RECORD_EVERY_MS })) return;',
    replacement: '',
    test: runLife('takes batches in producer order and answers repeats with what is stored'),
  },
  {
    name: 'a workspace does not lead out of its root',
    file: 'libs/runner/src/workspace.ts',
    text: "if (real !== realRoot && !real.startsWith(`${realRoot}${path.sep}`)) throw new WorkspaceRefused(folder, 'leads out of its root');",
    replacement: '',
    test: { file: 'libs/runner/src/process-backend.spec.ts', name: 'a workspace link is refused' },
  },

  // Who may call.
  {
    name: 'a call needs its scope',
    file: 'apps/api/src/access/authenticate.ts',
    text: 'requireScope(credential, access);',
    replacement: '',
    test: access('no route is open for a key with every scope but its own'),
  },
  {
    name: 'a call needs a valid key',
    file: 'apps/api/src/access/api-keys.sql.ts',
    text: 'AND (k.expires_at IS NULL OR k.expires_at > (SELECT runplane.app_now()))',
    replacement: '',
    test: access('a revoked key is closed within seconds, an expired one at once'),
  },
  {
    name: 'a run token opens its own run alone',
    file: 'apps/api/src/access/authenticate.ts',
    text: 'if (runId !== credential.runId) throw',
    replacement: 'if (runId === "") throw',
    test: access('opens no other run of the same tenant'),
  },

  // Launchers: what is outside is adopted, judged and removed only when it is the right one.
  {
    name: 'a Job of that name is not ours because of its name',
    file: `${RUNS}/kubernetes-job.ts`,
    text: 'return ids?.storeId === storeId && ids.tenantId === tenantId && ids.runnerJobId === runnerJobId;',
    replacement: 'return ids !== undefined;',
    test: kubernetes("leaves somebody else's Job of that name alone and says that no repeat can help"),
  },
  {
    name: 'a Job that has ended is not adopted',
    file: `${RUNS}/kubernetes-launcher.ts`,
    text: "if (observedJob(found).state === 'active') {",
    replacement: '{',
    test: kubernetes('adopts what an earlier try has made, and follows one that has ended with the next'),
  },
  {
    name: 'a Job is removed at the version that was seen, and looked at again otherwise',
    file: `${RUNS}/kubernetes-launcher.ts`,
    text: "if (job === undefined || job.metadata?.uid !== target.uid || observedJob(job).state !== 'active') return false;",
    replacement: 'if (job === undefined) return false;',
    test: kubernetes('removes exactly the Job that it has seen: not one that has ended, not one that took its name'),
  },
  {
    name: 'a Job is gone only when the API says so of that very object',
    file: `${RUNS}/kubernetes-api.ts`,
    text: '(status === 404 && about === name)',
    replacement: 'status === 404',
    test: kubernetes('takes no 404 but that about the Job itself for its absence'),
  },
  {
    name: 'a list that has expired is read from the start',
    file: `${RUNS}/kubernetes-launcher.ts`,
    text: "if (page === 'expired') break;",
    replacement: "if (page === 'expired') return jobs;",
    test: kubernetes('lists page by page, starts over when the place has expired, and knows what has become of each Job'),
  },
  {
    name: 'a launcher that does not answer says nothing about its jobs',
    file: `${RUNS}/reconcile-runner-jobs.ts`,
    text: 'if (observed === undefined) break;',
    replacement: 'if (observed === undefined) continue;',
    test: reconciliation('a launcher that does not answer is asked no further, tells nothing, and hides no other launcher'),
  },
  {
    name: 'a job that is young is no orphan',
    file: `${RUNS}/reconcile-runner-jobs.ts`,
    text: "state === 'active' && ageMs > ORPHAN_GRACE_MS",
    replacement: "state === 'active'",
    test: reconciliation(
      'only what runs on without a run is removed: not what is young, has ended, or has a run that is open or just over',
    ),
  },
  {
    name: 'a job whose run is just over is no orphan',
    file: `${RUNS}/runner-job.sql.ts`,
    text: "WHERE r.id IS NULL OR r.finished_at <= (SELECT runplane.app_now() - ${endedForMs}::int * interval '1 millisecond')",
    replacement: 'WHERE r.id IS NULL OR (r.finished_at IS NOT NULL AND ${endedForMs}::int > 0)',
    test: reconciliation(
      'only what runs on without a run is removed: not what is young, has ended, or has a run that is open or just over',
    ),
  },

  // Sessions: changes, marks, storage.
  {
    name: 'every move of a session’s version has the number of its change',
    file: `${SESSIONS}/session.sql.ts`,
    text: 'version = version + 1, changed_tx = greatest(changed_tx, ${feedTx})',
    replacement: 'version = version + 1',
    test: races('session-changes', 'shows a change that was numbered first and committed last'),
  },
  {
    name: 'changes of sessions stay below the horizon',
    file: `${SESSIONS}/session-list.sql.ts`,
    text: 'AND s.changed_tx < (SELECT horizon FROM h) ${range}',
    replacement: '${range}',
    test: races('session-changes', 'shows a change that was numbered first and committed last'),
  },
  {
    name: 'a session made by hand keeps its boundary',
    file: `${SESSIONS}/upsert-session.ts`,
    text: 'assertBoundary(stored, wanted);',
    replacement: '',
    test: sessionControl('keeps its boundary'),
  },
  {
    name: 'a read mark never goes back',
    file: `${SESSIONS}/read-cursor.sql.ts`,
    text: 'session_version = greatest(c.session_version, excluded.session_version)',
    replacement: 'session_version = excluded.session_version',
    test: sessionControl('never go back'),
  },
  {
    name: 'mark all read covers what stands above the horizon',
    file: `${SESSIONS}/read-cursor.sql.ts`,
    text: '>= (SELECT horizon FROM h)',
    replacement: '< (SELECT horizon FROM h) AND false',
    test: sessionControl('of all hold for what was committed, also behind a transaction that is open'),
  },
  {
    name: 'a page of sessions goes on where its scan stopped',
    file: `${SESSIONS}/list-sessions.ts`,
    text: 'return { sessions, next: scannedTo };',
    replacement: 'return { sessions, next: undefined };',
    test: sessionControl('of a tenant with many changed sessions are read in the list’s own order, and bounded'),
  },
  {
    name: 'storage is not claimed under an open turn',
    file: `${SESSIONS}/session-storage.sql.ts`,
    text: '<= (SELECT runplane.app_now()) AND active_run_id IS NULL',
    replacement: '<= (SELECT runplane.app_now())',
    test: sessionControl('is leased for deletion when it has expired and no turn is open'),
  },
  {
    name: 'one collector deletes a storage at a time',
    file: `${SESSIONS}/session-storage.sql.ts`,
    text: 'AND (storage_lease_expires_at IS NULL OR storage_lease_expires_at <= (SELECT runplane.app_now()))',
    replacement: '',
    test: sessionControl('is leased for deletion when it has expired and no turn is open'),
  },
  {
    name: 'storage is not claimed under any open run',
    file: `${RUNS}/claim-expired-storage.ts`,
    text: 'const busy = await listBusySessions(tx, claims);',
    replacement: 'const busy: StorageClaim[] = [];',
    test: storage('expired storage is not claimed while any run of the session is open'),
  },
  {
    name: 'no turn starts while storage is being deleted',
    file: `${RUNS}/admit-turn.ts`,
    text: 'assertStorageFree(session);',
    replacement: '',
    test: races('session-changes', 'refuses the turn that waits for it'),
  },
  {
    name: 'no run is made while storage is being deleted',
    file: `${RUNS}/create-run.ts`,
    text: 'assertStorageFree(await requireLockedSession(tx, tenantId, session.sessionId))',
    replacement: 'await requireLockedSession(tx, tenantId, session.sessionId)',
    test: storage('no run starts in a session while its storage is being deleted'),
  },
  {
    name: 'a turn takes an ended deletion away',
    file: `${SESSIONS}/session.sql.ts`,
    text: 'title = coalesce(title, ${title}::text), ${takeStorageLease},',
    replacement: 'title = coalesce(title, ${title}::text),',
    test: storage('no run starts in a session while its storage is being deleted'),
  },
  {
    name: 'a deletion is confirmed under its epoch alone',
    file: `${SESSIONS}/session-decisions.ts`,
    text: '&& session.storageLeaseEpoch === claim.epoch',
    replacement: '',
    test: sessionRules('a deletion is held by owner and epoch'),
  },
  {
    name: 'a report that storage is gone names its version',
    file: `${SESSIONS}/session-decisions.ts`,
    text: 'return session.storageVersion === report.storageVersion && session.storageKind',
    replacement: 'return session.storageKind',
    test: sessionRules('of an older version of the same name'),
  },
  {
    name: 'storage is not attached under a name that is being deleted',
    file: `${SESSIONS}/session-storage.ts`,
    text: 'assertStorageFree(session);',
    replacement: '',
    test: sessionControl('is not attached again under its name'),
  },
  {
    name: 'a collector of folders follows no link out of the root',
    file: `${RUNS}/folder-collector.ts`,
    text: "throw new Error('a symbolic link leads out of the root');",
    replacement: 'void realParent;',
    test: storage('does not follow a link out of the tenant’s folder'),
  },

  // Transactions.
  {
    name: 'a failed statement is not taken for success',
    file: 'libs/database/src/tx.ts',
    text: 'if (open.aborted !== undefined)',
    replacement: 'if (open.aborted === open)',
    test: { file: 'libs/database/src/tx.int.spec.ts', name: 'fails when the operation goes on after a failed statement' },
  },
  {
    name: 'a Tx ends with its transaction',
    file: 'libs/database/src/tx.ts',
    text: 'async query(statement) { assertOpen();',
    replacement: 'async query(statement) {',
    test: { file: 'libs/database/src/join-transaction.int.spec.ts', name: 'cannot be used through us after it was declared committed' },
  },

  // Lists: nothing is skipped, nothing told twice, nothing of another tenant.
  {
    name: 'a page of runs that ends short says where its walk stood',
    file: `${RUNS}/run-list.sql.ts`,
    text: 'WHEN w.fits OR w.is_last THEN',
    replacement: 'WHEN w.fits THEN',
    test: lists('a page that has looked at its rows is short and says where to go on; only the end has no cursor'),
  },
  {
    name: 'later pages leave out what has moved since the first',
    file: `${RUNS}/run-list.sql.ts`,
    text: 'AND r.updated_at <= (SELECT as_of FROM bound) AND (r.updated_at, r.id) >',
    replacement: 'AND (r.updated_at, r.id) >',
    test: lists('a run that moves is not told twice, one that stays is never missed'),
  },
  {
    name: 'a search takes its characters as they are',
    file: `${RUNS}/run-search.ts`,
    text: '.replace(/[\\\\%_]/g, (special) => `\\\\${special}`)',
    replacement: '',
    test: lists('looks through what names a run, in any case, and takes its characters as they are'),
  },
  {
    name: 'the search index finds runs of the tenant alone',
    file: `${RUNS}/run-list.sql.ts`,
    text: 'WHERE t.tenant_id = ${tenantId}::text AND t.text',
    replacement: 'WHERE t.text',
    test: lists('by the index finds what the walk finds, with every filter, order and place'),
  },
  {
    name: 'a page of chosen events goes on behind what it has read',
    file: `${RUNS}/event-pages.sql.ts`,
    text: 'first.goesOn === null ? null : first.goesOn - 1',
    replacement: 'null',
    test: eventPages('a page that finds little is short and goes on where it stood, to the very end'),
  },
  {
    name: 'a session shows its own runs alone',
    file: `${RUNS}/event-pages.sql.ts`,
    text: 'AND r.session_id = ${sessionId}::text`;',
    replacement: '`;',
    test: eventPages('of one run, the named, the active or the last is shown, and later pages stay with it'),
  },
  {
    name: 'counts that somebody holds are left alone',
    file: `${RUNS}/run-facets.sql.ts`,
    text: 'LIMIT ${rowsMax}::int FOR UPDATE SKIP LOCKED',
    replacement: 'LIMIT ${rowsMax}::int',
    test: {
      file: `${RUNS}/run-facets.int.spec.ts`,
      name: 'counts are summed while runs come and go, by several at a time, and rows that somebody holds are left alone',
    },
  },
  // Places held while the outside world is asked (OWN-1 to OWN-3).
  {
    name: 'rivals for a place wait for each other',
    file: `${RUNS}/reservations.ts`,
    text: 'await lockReservationKey(tx, of);',
    replacement: '',
    test: races('fences', 'are not both let in when a creation turns into a live run'),
  },
  {
    name: 'a hold is told apart by its epoch',
    file: `${RUNS}/reservation.sql.ts`,
    text: 'owner = ${of.owner}::text AND epoch = ${of.epoch}::int',
    replacement: 'owner IS NOT NULL',
    test: races('fences', 'the late confirmation is refused'),
  },
  {
    name: 'a hold whose lease has ended is not confirmed',
    file: `${RUNS}/reservation.sql.ts`,
    text: 'AND (held.expires_at > held.now OR NOT ${live}::bool)',
    replacement: '',
    test: { file: `${RUNS}/runner-slots.int.spec.ts`, name: 'whose lease has ended cannot be prolonged or confirmed' },
  },
  {
    name: 'live runs use up the capacity of their backend',
    file: `${RUNS}/runner-slots.ts`,
    text: 'key: backendProfile, limit: maxRunners, owner, leaseMs, live }',
    replacement: 'key: backendProfile, limit: maxRunners, owner, leaseMs }',
    test: { file: `${RUNS}/backends.int.spec.ts`, name: 'runs no more than it may, over all dispatchers' },
  },
  {
    name: 'a requeued run uses up no place until it is launched again',
    file: `${RUNS}/requeue-run.ts`,
    text: 'launched_at = NULL, ',
    replacement: '',
    test: { file: `${RUNS}/backends.int.spec.ts`, name: 'two requeued runs do not wait for each other' },
  },
  {
    name: 'waiting in line costs no attempt',
    file: `${RUNS}/dispatch-intent.sql.ts`,
    text: 'attempts = t.attempts - 1, ',
    replacement: '',
    test: { file: `${RUNS}/backends.int.spec.ts`, name: 'the others wait without losing an attempt' },
  },
  {
    name: 'a job is for a command of its run',
    file: `${RUNS}/runner-jobs.ts`,
    text: 'if (command?.runId !== runId)',
    replacement: 'if (command === undefined)',
    test: { file: `${RUNS}/runner-jobs.int.spec.ts`, name: 'is refused for a command of another run' },
  },
  {
    name: 'a retention fence leaves a run whose runner lives',
    file: `${RUNS}/retention-fence.ts`,
    text: 'if (lease !== undefined && isLive(lease.expiresInMs)) {',
    replacement: 'if (lease === null) {',
    test: races('fences', 'that meets a claim leaves the run to its runner'),
  },
];
