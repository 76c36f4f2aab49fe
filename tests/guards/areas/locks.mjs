// Locks and transactions.
import { CLAIMS, RUNS, claims, races } from '../places.mjs';

export const locksGuards = [
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
];
