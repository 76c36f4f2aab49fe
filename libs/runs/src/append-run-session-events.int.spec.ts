import type { AppendRunSessionEvents } from '@runplane/contracts';
import { useDatabase } from '@runplane/database/testing';
import { acquireSessionLease, readSessionEvents } from '@runplane/sessions';
import { createRuns } from './runs';
import { aClaimedRun, aClaimedTurn, makeTenants, TENANT } from './testing';

const t = useDatabase();
beforeAll(() => makeTenants(t.db));
const tenantId = TENANT;
const append = (runId: string, input: AppendRunSessionEvents) => createRuns(t.db).appendRunSessionEvents({ tenantId, runId, ...input });
const said = { type: 'assistant/message', data: { message: 'hello' } };

test('the runner of the open turn writes to the session’s log beside whoever holds its lease, until the run ends', async () => {
  const { run, command, epoch } = await aClaimedTurn(t.db, 'spoken');
  const key = { tenantId, sessionId: 'spoken' };
  await acquireSessionLease(t.db, { ...key, owner: 'worker' });

  const first = await append(run.id, { epoch, events: [said], appendId: 'a' });
  expect(first).toMatchObject({ lastSequence: 0, replayed: false });
  const { events } = await readSessionEvents(t.db, key);
  expect(events).toMatchObject([{ type: said.type, runId: run.id, commandId: command.id }]);

  await expect(append(run.id, { epoch: epoch + 1, events: [said] })).rejects.toMatchObject({ code: 'lease_lost' });
  for (const type of ['approval/resolved', 'submission/completed', 'session/deleted']) {
    await expect(append(run.id, { epoch, events: [{ type, data: {} }] })).rejects.toMatchObject({ code: expect.any(String) as string });
  }
  await createRuns(t.db).finishRun({ tenantId, runId: run.id, epoch, outcome: { terminalStatus: 'completed' } });
  await expect(append(run.id, { epoch, events: [said] })).rejects.toMatchObject({ code: 'run_closed' });
  expect(await append(run.id, { epoch, events: [said], appendId: 'a' })).toEqual({ ...first, replayed: true });
  expect((await readSessionEvents(t.db, key)).lastSequence).toBe(0);
});

test('a run without a session has no log to write to', async () => {
  const { run, epoch } = await aClaimedRun(t.db);
  await expect(append(run.id, { epoch, events: [said] })).rejects.toMatchObject({ code: 'session_required' });
});
