import type { Command } from '@runplane/contracts';
import { coalescedBounds, coalescerOf, inTransaction, type Coalescer, type Db, type Tx, type Verdict } from '@runplane/database';
import { ackCommand, acknowledgement, writer, type Ack } from './ack-command';
import { appendServerEventsTo } from './append-batch.sql';
import { listCommandsById, lockCommandsOf, toCommand, writeCommandsAcknowledged, type CommandRow } from './command.sql';
import { commandNotFound } from './require';
import type { ServerEvent } from './run-event.sql';
import { lockFreeRuns, type RunRow } from './run.sql';

/** Acknowledgements that arrive together share one transaction, with a statement for each of its steps. See Coalescer. */
export function ackCoalescer(db: Db): Coalescer<Ack, Command> {
  return coalescerOf(db, 'ack', () => ({
    describe: ({ tenantId, runId }) => ({ lane: `${tenantId}/${runId}`, single: 'ack', last: false, rows: 1, bytes: 0 }),
    together: (acks) => inTransaction(db, (tx) => ackTogether(tx, acks)),
    alone: (ack) => inTransaction(db, (tx) => ackCommand(tx, ack)),
    isRepeatable: () => true,
    ...coalescedBounds(db),
  }));
}

/** Of a run one ack at most. Locks: the runs that nobody else holds → their commands. */
async function ackTogether(tx: Tx, acks: readonly Ack[]): Promise<Verdict<Command>[]> {
  const runs = await lockFreeRuns(tx, acks);
  const commands = await lockCommandsOf(
    tx,
    acks.filter((ack) => runs.has(nameOf(ack))),
  );
  const decisions = acks.map((ack) => decide(ack, runs.get(nameOf(ack)), commands.get(commandNameOf(ack))));
  const taken = acks.flatMap((ack, i) => {
    const decision = decisions[i];
    return decision?.kind === 'take' ? [{ ...ack, events: decision.events }] : [];
  });
  if (taken.length === 0) return decisions.map((decision) => verdictOf(decision, undefined));
  await appendServerEventsTo(tx, taken);
  await writeCommandsAcknowledged(tx, taken);
  const written = await listCommandsById(tx, taken);
  return acks.map((ack, i) => verdictOf(decisions[i] ?? { kind: 'busy' }, written.get(commandNameOf(ack))));
}

const nameOf = ({ tenantId, runId }: Ack): string => `${tenantId}/${runId}`;
const commandNameOf = ({ tenantId, commandId }: Ack): string => `${tenantId}/${commandId}`;

type AckDecision =
  | { kind: 'busy' }
  | { kind: 'refused'; refusal: unknown }
  | { kind: 'keep'; command: CommandRow }
  | { kind: 'take'; events: readonly ServerEvent[] };

function decide(ack: Ack, run: RunRow | undefined, command: CommandRow | undefined): AckDecision {
  if (run === undefined) return { kind: 'busy' }; // or there is none: alone, the call says what its absence is called
  try {
    writer(run, ack.epoch);
  } catch (refusal) {
    return { kind: 'refused', refusal };
  }
  if (command === undefined) return { kind: 'refused', refusal: commandNotFound(ack.commandId) };
  const events = acknowledgement(run, command);
  return events === undefined ? { kind: 'keep', command } : { kind: 'take', events };
}

function verdictOf(decision: AckDecision, written: CommandRow | undefined): Verdict<Command> {
  switch (decision.kind) {
    case 'busy':
    case 'refused':
      return decision;
    case 'keep':
      return { kind: 'answer', answer: toCommand(decision.command) };
    case 'take':
      if (written === undefined) throw new Error('an acknowledged command is not there');
      return { kind: 'answer', answer: toCommand(written) };
  }
}
