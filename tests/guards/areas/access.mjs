// Who may call, with what, and for which tenant (TEN-1).
import { RUNS, access, feed, runLife, sessions } from '../places.mjs';

export const accessGuards = [
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
    text: 'sql`${isOf(sql`o.tenant_id`, tenantId)} AND ${isOf(sql`o.stream::text`, stream)}',
    replacement: 'sql`${isOf(sql`o.tenant_id`, undefined)} AND ${isOf(sql`o.stream::text`, stream)}',
    test: feed('of a tenant gets its own events alone'),
  },
  {
    name: 'a session is found by its tenant',
    file: 'libs/sessions/src/session.sql.ts',
    text: 'WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text FOR NO KEY UPDATE',
    replacement: 'WHERE ${tenantId}::text IS NOT NULL AND session_id = ${sessionId}::text FOR NO KEY UPDATE',
    test: sessions('of another tenant is not found'),
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
  {
    name: 'an admin of a tenant is not the operator',
    file: 'apps/api/src/access/authenticate.ts',
    text: "credential.scopes.includes('admin') && !access.includes('operator')",
    replacement: "credential.scopes.includes('admin')",
    test: access('what holds for all tenants is the operator’s, not an admin’s'),
  },
];
