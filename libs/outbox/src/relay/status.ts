import type { SinkStatus, SinkStatusList } from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { requireSink } from './require-sink';
import { isCountedWhole, listStatusRows, type StatusRow } from './status.sql';

/** How every sink stands, in one statement whose cost does not grow with the backlog. No lock. */
export async function getRelayStatus(at: At): Promise<SinkStatusList> {
  return { sinks: (await listStatusRows(executorOf(at), {})).map(toStatus) };
}

/** How one sink stands. Errors: SinkNotFound. No lock. */
export async function getSinkStatus(at: At, { sink }: { sink: string }): Promise<SinkStatus> {
  const on = executorOf(at);
  await requireSink(on, sink);
  const [row] = await listStatusRows(on, { sink });
  if (row === undefined) throw new Error(`sink ${sink} has gone meanwhile`);
  return toStatus(row);
}

function toStatus(row: StatusRow): SinkStatus {
  const { freshCount, ...status } = row;
  return { ...status, backlogCount: freshCount + status.heldCount, isExact: isCountedWhole(row), valuesPrinted: false };
}
