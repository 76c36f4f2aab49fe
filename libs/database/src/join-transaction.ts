import { NotInTransaction, WrongIsolation } from '@runplane/contracts';
import { databaseError } from './database-error';
import type { Db } from './db';
import { queryPg, queryPrisma, type PgClient, type PrismaTransaction } from './executors';
import { sql, type Sql, type SqlRow } from './sql';
import { sqlStateOf } from './sql-state';
import { openTx, type Tx } from './tx';

/** A caller's own open transaction: the client that Prisma hands to a `$transaction` callback, or a connection of pg after BEGIN. */
export type ForeignTransaction = (PrismaTransaction & { $executeRawUnsafe(text: string): Promise<unknown> }) | PgClient;

/** What both kinds of client can do here. */
interface Connection {
  query(statement: Sql): Promise<SqlRow[]>;
  /** A command without rows or parameters. */
  run(command: string): Promise<unknown>;
}

const SAVEPOINT = 'runplane_join';
const NO_ACTIVE_TRANSACTION = '25P01';

/**
 * Makes a Tx of a transaction that the caller has opened, so that operations and the caller's own writes commit or roll back together.
 *
 * Input     theirs: recognised by shape; an open transaction in READ COMMITTED (PostgreSQL's default).
 * Returns   the Tx, and `committed`: call it after COMMIT, and whoever waits is told at once; forgotten, the safety poll finds the change.
 * Errors    NotInTransaction, WrongIsolation. Later, through the Tx, TransactionConflict, LockTimeout and the like: `retryable` by the owner
 *           of the transaction in a new one; nothing is repeated here.
 * Writes    nothing; no setting of the caller's session is changed.
 */
export async function joinTransaction(db: Db, theirs: ForeignTransaction): Promise<{ tx: Tx; committed: () => void }> {
  const connection = connectionOf(theirs);
  await assertInTransaction(connection);
  const open = openTx((statement) => connection.query(statement), db.options);
  const [row] = await open.tx.query(sql`SELECT current_setting('transaction_isolation') AS isolation`);
  const isolation = String(row?.['isolation']);
  if (isolation !== 'read committed')
    throw new WrongIsolation(`joinTransaction needs READ COMMITTED, this transaction is ${isolation}.`, { isolation });
  let told = false;
  return {
    tx: open.tx,
    committed: () => {
      open.end();
      if (!told) db.changed([...open.changedStreams]);
      told = true;
    },
  };
}

function connectionOf(theirs: ForeignTransaction): Connection {
  if ('$queryRawUnsafe' in theirs)
    return { query: (statement) => queryPrisma(theirs, statement), run: (command) => theirs.$executeRawUnsafe(command) };
  if ('totalCount' in theirs) throw new NotInTransaction('joinTransaction needs one connection with an open transaction, not a pool.');
  // Unnamed: the caller's connection may go through a pooler that knows no prepared statements.
  return { query: (statement) => queryPg(theirs, statement, false), run: (text) => theirs.query({ text }) };
}

/** SAVEPOINT is the one command that is refused outside a transaction and leaves no trace inside. */
async function assertInTransaction(connection: Connection): Promise<void> {
  try {
    await connection.run(`SAVEPOINT ${SAVEPOINT}`);
    await connection.run(`RELEASE SAVEPOINT ${SAVEPOINT}`);
  } catch (error) {
    if (sqlStateOf(error) === NO_ACTIVE_TRANSACTION) throw new NotInTransaction(undefined, { cause: error });
    throw databaseError(error, 'nothing-written');
  }
}
