import { newId } from '@runplane/contracts';
import { openDb, type Db } from '@runplane/database';
import { startTcpProxy, useDatabase, type Fate, type TcpProxy } from '@runplane/database/testing';
import { appendRunEvents, claimRun, createRuns, getRun } from '@runplane/runs';
import { appendSessionEvents, createSessions, readSessionEvents } from '@runplane/sessions';
import { aClaimedTurn, aRun, aRunner, aTurn, makeTenants, message, newRun, newTurn, story, TENANT } from '@runplane/runs/testing';

// A COMMIT whose answer is lost, and one that never arrives: the caller is told that the outcome is unknown, and repeats the call. Whatever
// had become of the first one, the effect is there once.

const database = useDatabase();
let proxy: TcpProxy;
let broken: Db;

beforeAll(async () => {
  await makeTenants(database.db);
  proxy = await startTcpProxy(database.url);
  broken = await openDb({
    url: proxy.through(database.url),
    preparedStatements: false,
    applicationName: 'broken',
    onError: () => undefined,
  });
});
afterAll(async () => {
  await broken.close();
  await proxy.close();
});
afterEach(() => proxy.judge(() => 'forward'));

/** Types of a session's events in order. */
async function logOf(sessionId: string | null): Promise<string[]> {
  const { rows } = await database.db.pool.query('SELECT type FROM runplane.session_events WHERE session_id = $1 ORDER BY sequence', [
    sessionId,
  ]);
  return rows.map(({ type }: { type: string }) => type);
}

interface Repeatable {
  /** In the packet that decides: COMMIT, or the one statement of an operation. */
  readonly decides: string;
  readonly call: (db: Db) => Promise<unknown>;
  /** What the database says of it afterwards. */
  readonly effect: () => Promise<unknown>;
}

const OPERATIONS: Record<string, { prepare: () => Promise<Repeatable>; once: unknown }> = {
  'createRun with a reserved id': {
    prepare: async () => {
      const runId = newId('run');
      return {
        decides: 'COMMIT',
        call: (db) => createRuns(db).createRun({ tenantId: TENANT, runId, run: newRun() }),
        effect: () => story(database.db, runId),
      };
    },
    once: ['run-created'],
  },
  'admitTurn with a key': {
    prepare: async () => {
      const [sessionId, idempotencyKey] = [newId('session'), newId('key')];
      return {
        decides: 'COMMIT',
        call: (db) => createRuns(db).admitTurn({ tenantId: TENANT, sessionId, turn: newTurn(), idempotencyKey }),
        effect: async () => {
          const { rows } = await database.db.pool.query(
            `SELECT count(DISTINCT r.id)::int AS runs, count(DISTINCT c.id)::int AS commands, count(DISTINCT i.id)::int AS intents
               FROM runplane.runs r LEFT JOIN runplane.commands c ON c.run_id = r.id LEFT JOIN runplane.dispatch_intents i ON i.run_id = r.id WHERE r.session_id = $1`,
            [sessionId],
          );
          return rows[0] as unknown;
        },
      };
    },
    once: { runs: 1, commands: 1, intents: 1 },
  },
  claimRun: {
    prepare: async () => {
      const run = await aRun(database.db);
      const runnerId = aRunner();
      return {
        decides: 'INSERT INTO runplane.run_leases',
        call: (db) => claimRun(db, { tenantId: TENANT, runId: run.id, runnerId }),
        effect: async () => {
          const { claimedBy, claimEpoch, attempts } = await getRun(database.db, { tenantId: TENANT, runId: run.id });
          return { mine: claimedBy === runnerId, claimEpoch, attempts, story: await story(database.db, run.id) };
        },
      };
    },
    once: { mine: true, claimEpoch: 1, attempts: 1, story: ['run-created', 'run-claimed'] },
  },
  'appendRunEvents with a producer sequence': {
    prepare: async () => {
      const { run, epoch } = await aClaimedTurn(database.db);
      const before = (await story(database.db, run.id)).length;
      return {
        decides: 'INSERT INTO runplane.run_events',
        call: (db) =>
          appendRunEvents(db, { tenantId: TENANT, runId: run.id, epoch, producerSequence: 1, events: [message('one'), message('two')] }),
        effect: async () => (await story(database.db, run.id)).slice(before),
      };
    },
    once: ['assistant_message', 'assistant_message'],
  },
  finishRun: {
    prepare: async () => {
      const { run, command, epoch } = await aClaimedTurn(database.db);
      const before = (await story(database.db, run.id)).length;
      return {
        decides: 'COMMIT',
        call: (db) =>
          createRuns(db).finishRun({
            tenantId: TENANT,
            runId: run.id,
            epoch,
            commandId: command.id,
            outcome: { terminalStatus: 'completed' },
          }),
        effect: async () => (await story(database.db, run.id)).slice(before),
      };
    },
    once: ['command-terminal', 'terminal_status'],
  },
  'requestInput with an id': {
    prepare: async () => {
      const { run, epoch } = await aClaimedTurn(database.db);
      return {
        decides: 'COMMIT',
        call: (db) => createRuns(db).requestInput({ tenantId: TENANT, runId: run.id, epoch, requestId: 'q', prompt: 'why?' }),
        effect: () => logOf(run.sessionId),
      };
    },
    once: ['user-input/requested'],
  },
  resolveApproval: {
    prepare: async () => {
      const { run, epoch } = await aClaimedTurn(database.db);
      const sessionId = run.sessionId ?? '';
      const asked = { tenantId: TENANT, runId: run.id, epoch, approvalId: 'a', toolName: 'rm', arguments: {} };
      await createRuns(database.db).requestApproval(asked);
      const decision = {
        tenantId: TENANT,
        sessionId,
        approvalId: 'a',
        resolution: 'approved',
        actor: { type: 'user', id: 'ann' },
      } as const;
      return { decides: 'COMMIT', call: (db) => createSessions(db).resolveApproval(decision), effect: () => logOf(sessionId) };
    },
    once: ['approval/requested', 'approval/resolved'],
  },
  cancelRun: {
    prepare: async () => {
      const { run } = await aTurn(database.db);
      const before = (await story(database.db, run.id)).length;
      return {
        decides: 'COMMIT',
        call: (db) => createRuns(db).cancelRun({ tenantId: TENANT, runId: run.id, reason: 'enough' }),
        effect: async () => (await story(database.db, run.id)).slice(before),
      };
    },
    once: ['cancel-accepted', 'cancel-persisted', 'command-terminal', 'terminal_status', 'cancel-terminalized'],
  },
};

const FATES = [
  ['whose answer is lost', 'lose-answer'],
  ['that never arrives', 'lose-request'],
] as const satisfies [string, Fate][];

describe.each(Object.entries(OPERATIONS))('%s, by a COMMIT', (_name, { prepare, once }) => {
  test.each(FATES)('%s, fails as unknown, and its repeat leaves the effect of one call', async (_fate, fate) => {
    const { decides, call, effect } = await prepare();

    let hits = 0;
    proxy.judge((bytes) => {
      if (hits > 0 || !bytes.includes(decides)) return 'forward';
      hits += 1;
      return fate;
    });
    await expect(call(broken)).rejects.toMatchObject({ code: 'outcome_unknown', retryable: true });
    await call(broken);
    await call(broken);

    expect(hits).toBe(1);
    expect(await effect()).toEqual(once);
  });
});

test.each(FATES)(
  'an append to a session, by a COMMIT %s, is asked after by its append id, or says that it is unknown',
  async (_fate, fate) => {
    const sessionId = newId('session');
    await createSessions(database.db).createSession({ tenantId: TENANT, header: { id: sessionId } });
    const events = [{ type: 'channel/other', data: { n: 1 } }, { type: 'channel/other', data: { n: 2 } }]; // prettier-ignore
    const lose = () => {
      let hits = 0;
      proxy.judge((bytes) => {
        if (hits > 0 || !bytes.includes('INSERT INTO runplane.session_events')) return 'forward';
        hits += 1;
        return fate;
      });
    };

    lose();
    const answer = await appendSessionEvents(broken, { tenantId: TENANT, sessionId, appendId: 'a', events });
    expect(answer).toMatchObject({ lastSequence: 1, replayed: fate === 'lose-answer' });
    lose();
    const unknown = appendSessionEvents(broken, { tenantId: TENANT, sessionId, expectedSequence: 2, events });
    await expect(unknown).rejects.toMatchObject({ code: 'outcome_unknown', retryable: true });
    expect((await readSessionEvents(database.db, { tenantId: TENANT, sessionId })).events).toHaveLength(fate === 'lose-answer' ? 4 : 2);
  },
);

test('a call whose connection breaks before its COMMIT says that nothing was written, and nothing is', async () => {
  const runId = newId('run');

  proxy.judge((bytes) => {
    if (!bytes.includes('INSERT INTO runplane.runs')) return 'forward';
    proxy.judge(() => 'forward');
    return 'lose-request';
  });
  const call = createRuns(broken).createRun({ tenantId: TENANT, runId, run: newRun() });

  await expect(call).rejects.toMatchObject({ code: 'database_unavailable', retryable: true });
  await expect(getRun(database.db, { tenantId: TENANT, runId })).rejects.toMatchObject({ code: 'run_not_found' });
});
