// A view of your own over the logs of sessions: what each session has cost. Appends through this store handle keep it up to date, in the statement
// that writes the events; a process that does not know it leaves it behind, and the next one that does catches up.

import type { SessionProjection } from '@runplane/contracts';
import { openDb, type Db } from '@runplane/database';
import { listProjections } from '@runplane/sessions';

export interface Cost extends Record<string, number> {
  readonly calls: number;
  readonly micros: number;
}

/** Pure: the same events give the same value. Raise the version with the rules; the views are built anew from the logs then. */
export const cost: SessionProjection<Cost> = {
  key: 'cost',
  version: 1,
  touches: (type) => type === 'metrics/model-call',
  initial: () => ({ calls: 0, micros: 0 }),
  apply: ({ calls, micros }, { data }) => ({
    calls: calls + 1,
    micros: micros + (typeof data['micros'] === 'number' ? data['micros'] : 0),
  }),
};

export const openWithCost = (url: string): Promise<Db> => openDb({ url, projections: [cost] });

/** What all sessions of a tenant have cost, page by page. */
export async function totalCost(db: Db, tenantId: string): Promise<number> {
  let total = 0;
  for (let cursor: string | null | undefined; cursor !== null;) {
    const page = await listProjections(db, { tenantId, key: cost.key, cursor });
    for (const { value } of page.projections) total += (value as Cost).micros;
    cursor = page.cursor;
  }
  return total;
}
