import { createClient, type Client } from '@runplane/client';
import type { SessionEvent } from '@runplane/contracts';
import { eraseDeletedOnce } from '@runplane/runs';
import type { AddressInfo } from 'node:net';
import { RawClient } from '../support/sse-client';
import { useApi } from '../support/test-api';

// The log of sessions over HTTP, by the client.

const api = useApi();
let client: Client;
let address: string;
beforeAll(async () => {
  await api.app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = api.app.server.address() as AddressInfo;
  address = `http://127.0.0.1:${port}`;
  client = createClient({ url: address, apiKey: api.adminKey });
});

const said = (text: string) => ({ type: 'custom/said', data: { text } });
const textsOf = (events: readonly SessionEvent[]) => events.map(({ data }) => data['text']);

test('a session is made, leased, written, read, followed and given back', async () => {
  const id = '会话 1/x';
  expect(await client.createSession({ id, projectId: 'p' })).toMatchObject({ replayed: false, log: { lastSequence: -1 } });
  const { epoch } = await client.acquireSessionLease(id, { owner: 'w1' });
  await expect(client.acquireSessionLease(id, { owner: 'w2' }, { retry: { attemptsMax: 1 } })).rejects.toMatchObject({
    status: 409,
    code: 'session_leased',
    data: { leaseRemainingMs: expect.any(Number) as number },
  });

  const followed: SessionEvent[] = [];
  const stop = new AbortController();
  const following = (async () => {
    for await (const event of client.followSession(id, { signal: stop.signal })) {
      followed.push(event);
      if (followed.length === 4) stop.abort(new Error('enough'));
    }
  })();
  const polled = client.readSessionEvents(id, { after: -1, waitSeconds: 20 });
  const append = { epoch, appendId: 'a1', events: [said('a'), said('b')] };
  const first = await client.appendSessionEvents(id, append);
  expect(await client.appendSessionEvents(id, append)).toEqual({ ...first, replayed: true });
  await client.appendSessionEvents(id, { epoch, expectedSequence: 2, events: [said('c')] });
  expect(textsOf((await polled).events)).toContain('a');
  api.app.server.closeAllConnections(); // the stream is taken up again behind what it has sent
  await client.appendSessionEvents(id, { epoch, events: [said('d')] });
  await expect(following).rejects.toThrow('enough');
  expect(textsOf(followed)).toEqual(['a', 'b', 'c', 'd']);

  const all: SessionEvent[] = [];
  for await (const event of client.iterateSessionEvents(id)) all.push(event);
  expect(all).toEqual(followed);
  expect(textsOf((await client.readSessionEvents(id, { before: 3, limit: 2 })).events)).toEqual(['b', 'c']);
  expect(await client.getSessionLog(id)).toMatchObject({ lastSequence: 3, header: { id, projectId: 'p' } });
  expect((await client.listSessionLogs()).sessions.map(({ sessionId }) => sessionId)).toContain(id);

  expect((await client.renewSessionLease(id, { owner: 'w1', epoch, leaseMs: 60_000 })).remainingMs).toBeGreaterThan(50_000);
  expect(await client.revokeSessionLease(id)).toEqual({ revoked: true });
  await expect(client.appendSessionEvents(id, { epoch, events: [] })).rejects.toMatchObject({ code: 'session_lease_lost' });
  expect(await client.releaseSessionLease(id, { owner: 'w1', epoch })).toEqual({ released: false });
});

test('resolutions need the right to decide, whoever holds the lease', async () => {
  await client.createSession({ id: 'decided' });
  const key = await api.makeKey(['sessions:write']);
  const body = { events: [{ type: 'approval/resolved', data: { approval_id: 'a', resolution: 'approved' } }] };
  expect(await api.call('POST', '/v1/sessions/decided/events', { key, body })).toMatchObject({
    status: 403,
    body: { code: 'forbidden', data: { scope: 'approvals:resolve' } },
  });

  // Brought with a log they are decisions as well: of a call that nobody has approved, in a session that a worker may then go on with.
  const lines = [
    { type: 'session', id: 'brought' },
    { sequence: 0, type: 'approval/requested', time: 1, data: { approval_id: 'a', tool_name: 'rm' } },
    { sequence: 1, type: 'approval/resolved', time: 2, data: { approval_id: 'a', resolution: 'approved' } },
  ].map((line) => JSON.stringify(line));
  const bring = (apiKey: string, text: string) => createClient({ url: address, apiKey }).importSession(text);
  await expect(bring(key, lines.join('\n'))).rejects.toMatchObject({
    status: 403,
    code: 'forbidden',
    data: { scope: 'approvals:resolve' },
  });
  await expect(client.getSessionLog('brought')).rejects.toMatchObject({ status: 404 });
  expect(await bring(key, lines.slice(0, 2).join('\n'))).toMatchObject({ closed: 1 });
  const decider = await api.makeKey(['sessions:write', 'approvals:resolve']);
  expect(await bring(decider, lines.join('\n').replace('brought', 'decided too'))).toMatchObject({ closed: 0 });
});

test('nobody goes on in the next life of a session’s id with a place in the last one', async () => {
  const id = 'reborn';
  const live = async (events: number) => {
    await client.createSession({ id });
    const { epoch } = await client.acquireSessionLease(id, { owner: 'w' });
    const notes = [1, 2].map((n) => ({ type: 'context/note-written', data: { path: `p${n}`, text: 'x' } }));
    await client.appendSessionEvents(id, { epoch, events: [...notes, ...Array.from({ length: events }, () => said('x'))] });
    await client.releaseSessionLease(id, { owner: 'w', epoch });
    return (await client.getSessionLog(id)).incarnation;
  };
  const first = await live(1);
  const raw = new RawClient(address, `/v1/sessions/${id}/events/stream`, { authorization: `Bearer ${api.adminKey}` });
  await raw.until(({ frames }) => frames.length === 3, 'the log so far');
  const { id: frame } = raw.frames.at(-1) ?? {};
  raw.cut();
  const notes = await api.call('GET', `/v1/sessions/${id}/context-notes?limit=1`);
  const page = await client.readSessionEvents(id, { limit: 1 });
  expect([frame, page.incarnation]).toEqual([`${id}:${first}:2`, first]);

  await client.deleteSession(id);
  await eraseDeletedOnce(api.db, { delayMs: 0 });
  const second = await live(5);

  const gone = { status: 410, body: { code: 'other_incarnation', data: { sessionId: id, incarnation: second } } };
  const stream = `/v1/sessions/${id}/events/stream`;
  expect(await api.call('GET', stream, { headers: { 'last-event-id': frame ?? '' } })).toMatchObject(gone);
  expect(await api.call('GET', `${stream}?after=2&incarnation=${first}`)).toMatchObject(gone);
  expect(await api.call('GET', `/v1/sessions/${id}/events?after=0&incarnation=${first}&wait=20`)).toMatchObject(gone);
  await expect(client.followSession(id, { after: 2, incarnation: first }).next()).rejects.toMatchObject({ code: 'other_incarnation' });
  expect(await api.call('GET', `/v1/sessions/${id}/context-notes?cursor=${notes.body.cursor}`)).toMatchObject({
    status: 400,
    body: { code: 'invalid_cursor' },
  });
  expect((await client.readSessionEvents(id, { after: 5, incarnation: second })).events).toHaveLength(1);
});

test('a stream starts where the client says, and nowhere behind the end', async () => {
  await client.createSession({ id: 'short' });
  const start = (query: string, headers = {}) => api.call('GET', `/v1/sessions/short/events/stream${query}`, { headers });
  expect(await start('?after=0')).toMatchObject({ status: 400, body: { code: 'invalid_cursor' } });
  expect(await start('', { 'last-event-id': 'other:0' })).toMatchObject({ status: 400, body: { code: 'invalid_cursor' } });
  expect(await start('?after=-2')).toMatchObject({ status: 400, body: { code: 'invalid_request' } });
});
