import type { Db } from './db';
import type { Stream } from './hub';
import type { SqlExecutor } from './sql';
import { brand, type Tx } from './tx';

/** Where an operation of one statement runs: alone on the store's pool, or inside the caller's transaction. */
export type At = Db | Tx;

export function isTx(at: At): at is Tx {
  return brand in at;
}

export function executorOf(at: At): SqlExecutor {
  return isTx(at) ? at : at.sql;
}

/** Tells whoever waits for the stream: at once when the statement has committed alone, else after the transaction's commit. */
export function announce(at: At, stream: Stream): void {
  if (isTx(at)) at.changed(stream);
  else at.changed([stream]);
}
