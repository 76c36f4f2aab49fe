import { parseInput, SinkName, SinkNotFound } from '@runplane/contracts';
import type { SqlExecutor } from '@runplane/database';
import { findSink, type SinkRow } from './operate.sql';

export async function requireSink(on: SqlExecutor, sink: string): Promise<SinkRow> {
  const found = await findSink(on, parseInput(SinkName, sink));
  if (found === undefined) throw new SinkNotFound(`There is no sink ${sink}.`, { sink });
  return found;
}
