import { randomUUID } from 'node:crypto';
import type { ListRuns, ListSessionEvents } from '@runplane/contracts';
import { inTransaction, type Db } from '@runplane/database';
import {
  admitTurn,
  appendRunEvents,
  cancelRun,
  claimRun,
  countRunEvents,
  createRun,
  finishRun,
  getRunFacets,
  heartbeat,
  listCommandEvents,
  listRunEvents,
  listRunOutput,
  listRuns,
  listSessionOutput,
  listSessionTrace,
} from '@runplane/runs';
import { claimTurns, TENANT } from '../append/claimed-turns';
import { payloadOf } from '../append/payload';
import type { Caller } from '../support/measure';
import { LONG_RUN, OLD_WORD, type Size } from './load';

/** One thing that users do, made ready on a store of some size. */
export interface GrowthCase {
  readonly name: string;
  /** False for what may grow with the store; measured all the same. */
  readonly isBounded?: false;
  /** What the measured call needs, out of the measurement; how many calls will be made. */
  readonly prepare: (db: Db, size: Size, calls: number) => Promise<Caller>;
}

const tenantId = TENANT;

const list = (name: string, filter: (size: Size) => ListRuns, over: Partial<GrowthCase> = {}): GrowthCase => ({
  name: `list: ${name}`,
  prepare: (db, size) => Promise.resolve(() => listRuns(db, { tenantId, ...filter(size) })),
  ...over,
});

/** From a page far down: a fifth of the tenant's runs, or as many as a hundred pages have. */
const deep = (name: string, filter: ListRuns): GrowthCase => ({
  name: `list: ${name}, a deep page`,
  prepare: async (db, { runs }) => {
    let cursor: string | undefined;
    for (let page = 0; page < Math.min(100, Math.max(1, runs / 1_000)); page += 1) {
      const next = (await listRuns(db, { tenantId, ...filter, limit: 100, cursor })).cursor;
      if (next === null) break;
      cursor = next;
    }
    return () => listRuns(db, { tenantId, ...filter, cursor });
  },
});

/** An even run is one of the tenant's; this one is ended, in a session, in the middle. */
const middle = ({ runs }: Size): number => Math.floor(runs / 400) * 200 + 20;
const idOf = (i: number): string => `run_${String(i).padStart(8, '0')}`;
const inMiddle = (size: Size) => ({ tenantId, runId: idOf(middle(size)), commandId: `cmd_${middle(size)}` });
const session = (size: Size, over: ListSessionEvents = {}) => ({
  tenantId,
  sessionId: `session-${Math.floor(middle(size) / 20)}`,
  ...over,
});
const reading = (name: string, read: (db: Db, size: Size) => Promise<unknown>): GrowthCase => ({
  name,
  prepare: (db, size) => Promise.resolve(() => read(db, size)),
});

const READS: readonly GrowthCase[] = [
  list('first page', () => ({})),
  list('first page of 100', () => ({ limit: 100 })),
  list('first page with total', () => ({ total: true }), { isBounded: false }),
  deep('all', {}),
  list('oldest change first', () => ({ sort: 'updated-asc' })),
  deep('oldest change first', { sort: 'updated-asc' }),
  list('by state', () => ({ sort: 'status-asc' })),
  deep('by state', { sort: 'status-asc' }),
  list('by id', () => ({ sort: 'id-asc' })),
  deep('by id', { sort: 'id-asc' }),
  list('a state', () => ({ statuses: ['failed'] })),
  list('open states', () => ({ statuses: ['pending', 'claimed'] })),
  list('a project', () => ({ projectId: 'project-7' })),
  list('a workspace', () => ({ workspace: 'team/workspace-6' })),
  list('a profile', () => ({ backendProfile: 'profile-2' })),
  list('a provider', () => ({ providerId: 'provider-1' })),
  list('a session', (size) => session(size)),
  list('changed since', () => ({ updatedAfter: new Date(Date.now() - 3_600_000).toISOString() })),
  list('a project and a state', () => ({ projectId: 'project-7', statuses: ['completed'] })),
  list('a profile by id', () => ({ backendProfile: 'profile-2', sort: 'id-asc' })),
  list('search, in every run', () => ({ search: 'project-' })),
  list('search, one run', (size) => ({ search: idOf(middle(size)) })),
  list('search, none', () => ({ search: 'zebrafish' })),
  list('search, two letters', () => ({ search: '7' })),
  list('search, common and far down', () => ({ search: OLD_WORD }), { isBounded: false }),
  reading('facets', (db) => getRunFacets(db, { tenantId })),
  reading('events: page of a run', (db, size) => listRunEvents(db, { ...inMiddle(size), afterSeq: 0 })),
  reading('events: deep in a long run', (db, { runs, events }) =>
    listRunEvents(db, { tenantId, runId: LONG_RUN, afterSeq: Math.floor((events - runs * 9) / 20) }),
  ),
  reading('events: output of a long run', (db) => listRunOutput(db, { tenantId, runId: LONG_RUN, limit: 20 })),
  reading('events: count', (db) => countRunEvents(db, { tenantId, runId: LONG_RUN })),
  reading('events: of a command', (db, size) => listCommandEvents(db, inMiddle(size))),
  reading('events: trace of a session', (db, size) => listSessionTrace(db, session(size, { runs: 'all' }))),
  reading('events: output of a session', (db, size) => listSessionOutput(db, session(size, { runs: 'all' }))),
];

/** Each call takes the next of what was made ready. */
function oneEach<T>(made: readonly T[], call: (each: T) => Promise<unknown>): Caller {
  let next = 0;
  return () => {
    const each = made[next];
    next += 1;
    if (each === undefined) throw new Error('more calls than were made ready for');
    return call(each);
  };
}

async function newRuns(db: Db, count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let i = 0; i < count; i += 1) {
    const { run } = await inTransaction(db, (tx) =>
      createRun(tx, { tenantId, run: { projectId: 'project-1', backendProfile: 'profile-1' } }),
    );
    ids.push(run.id);
  }
  return ids;
}

const WRITES: readonly GrowthCase[] = [
  {
    name: 'create a run',
    prepare: (db) =>
      Promise.resolve(() =>
        inTransaction(db, (tx) => createRun(tx, { tenantId, run: { projectId: 'project-1', backendProfile: 'profile-1' } })),
      ),
  },
  {
    name: 'admit a turn',
    prepare: (db) =>
      Promise.resolve(() => {
        const key = randomUUID();
        const turn = { run: { projectId: 'project-1', backendProfile: 'profile-1' }, payload: { text: 'go' } };
        return inTransaction(db, (tx) => admitTurn(tx, { tenantId, sessionId: key, turn, idempotencyKey: key }));
      }),
  },
  {
    name: 'claim a run',
    prepare: async (db, _size, calls) =>
      oneEach(await newRuns(db, calls), (runId) => claimRun(db, { tenantId, runId, runnerId: randomUUID() })),
  },
  {
    name: 'append an event',
    prepare: async (db) => {
      const [turn] = await claimTurns(db, 1);
      if (turn === undefined) throw new Error('no turn');
      const { runId, epoch, commandId } = turn;
      return () => appendRunEvents(db, { tenantId, runId, epoch, events: [{ type: 'assistant_message', payload: payloadOf(commandId) }] });
    },
  },
  {
    name: 'heartbeat',
    prepare: async (db) => {
      const [turn] = await claimTurns(db, 1);
      if (turn === undefined) throw new Error('no turn');
      return () => heartbeat(db, { tenantId, runId: turn.runId, epoch: turn.epoch });
    },
  },
  {
    name: 'cancel a run',
    prepare: async (db, _size, calls) =>
      oneEach(await newRuns(db, calls), (runId) => inTransaction(db, (tx) => cancelRun(tx, { tenantId, runId, reason: 'enough' }))),
  },
  {
    name: 'finish a turn',
    prepare: async (db, _size, calls) =>
      oneEach(await claimTurns(db, calls), ({ runId, epoch }) =>
        inTransaction(db, (tx) => finishRun(tx, { tenantId, runId, epoch, outcome: { terminalStatus: 'completed' } })),
      ),
  },
];

export const GROWTH_CASES: readonly GrowthCase[] = [...READS, ...WRITES];
