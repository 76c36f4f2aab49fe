import { Coalescer, type CoalescedWork } from './coalescer';
import type { Db } from './db';

const made = new WeakMap<Db, Map<string, Coalescer<never, unknown>>>();

/** The handle's coalescer of this name, made at first use; `db.close()` drains it. A name stands for one kind of call. */
export function coalescerOf<Call, Answer>(db: Db, name: string, work: () => CoalescedWork<Call, Answer>): Coalescer<Call, Answer> {
  let ofDb = made.get(db);
  if (ofDb === undefined) made.set(db, (ofDb = new Map<string, Coalescer<never, unknown>>()));
  const known = ofDb.get(name);
  if (known !== undefined) return known as unknown as Coalescer<Call, Answer>;
  const coalescer = new Coalescer(work());
  ofDb.set(name, coalescer as unknown as Coalescer<never, unknown>);
  db.coalescers.set(name, coalescer);
  return coalescer;
}
