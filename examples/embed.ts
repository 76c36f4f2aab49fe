// Your own row and a run, together or not at all: Runplane's operations join the transaction that you have opened on your own connection.
// The same works with the client that Prisma hands to a `$transaction` callback.

import { joinTransaction, type Db } from '@runplane/database';
import { admitTurn } from '@runplane/runs';
import type { Client } from 'pg';

export interface Order {
  readonly id: string;
  readonly wish: string;
}

/** Stores the order and starts an agent on it. Whoever crashes in between leaves neither behind. */
export async function placeOrder(connection: Client, runplane: Db, order: Order): Promise<{ runId: string }> {
  await connection.query('BEGIN');
  try {
    await connection.query('INSERT INTO shop_orders (id, wish) VALUES ($1, $2)', [order.id, order.wish]);

    const joined = await joinTransaction(runplane, connection);
    const { run } = await admitTurn(joined.tx, {
      tenantId: 'shop',
      sessionId: `order-${order.id}`,
      idempotencyKey: `place-${order.id}`,
      turn: { run: { projectId: 'orders', backendProfile: 'packer' }, payload: { text: order.wish } },
    });
    await connection.query('UPDATE shop_orders SET run_id = $2 WHERE id = $1', [order.id, run.id]);

    await connection.query('COMMIT');
    joined.committed(); // tells the dispatcher and whoever follows the run at once; forgotten, they find it within a second
    return { runId: run.id };
  } catch (error) {
    await connection.query('ROLLBACK');
    throw error;
  }
}
