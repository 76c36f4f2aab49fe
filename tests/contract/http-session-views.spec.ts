import { createClient, type Client } from '@runplane/client';
import type { AddressInfo } from 'node:net';
import { useApi } from '../support/test-api';

// What is read of a session's log over HTTP, by the client. What each answer holds, the tests of the library say.

const api = useApi();
let client: Client;
beforeAll(async () => {
  await api.app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = api.app.server.address() as AddressInfo;
  client = createClient({ url: `http://127.0.0.1:${port}`, apiKey: api.adminKey });
});

test('every view of a session is read through the client', async () => {
  const id = '会话 views/1';
  const address = { channel_id: 'tg', account_id: 'a', conversation_id: 'c' };
  const nasty = { a: [1, null, 'x', { b: {} }], '': false, __proto__x: 1, toString: 2, emoji: '🦊é' };
  await client.createSession({ id, parent_session_id: 'p' });
  const { epoch } = await client.acquireSessionLease(id, { owner: 'w' });
  const { events } = await client.appendSessionEvents(id, {
    epoch,
    events: [
      { type: 'turn/start', turnId: 't1', data: {} },
      { type: 'subagent/descriptor', data: nasty },
      { type: 'channel/bound', data: { ...address, ...nasty } },
      { type: 'channel/delivery/queued', data: { delivery_id: 'd', ...nasty } },
      { type: 'channel/delivery/failed', data: { delivery_id: 'd', error: 'no' } },
      { type: 'context/window-started', data: { windowId: 'w1' } },
      { type: 'user/message', data: { content: 'find the fox' } },
      { type: 'context/note-written', data: { path: 'plan/a & b', text: 'first' } },
    ],
  });

  expect(await client.getSessionSnapshot(id)).toMatchObject({
    snapshot: {
      activeTurnId: 't1',
      contextWindowId: 'w1',
      sequence: 7,
      durableCursor: events[7]?.cursor,
      lastEventType: 'context/note-written',
    },
  });
  expect((await client.listRecoveryCandidates({ limit: 200 })).candidates).toMatchObject([
    { sessionId: id, snapshot: { activeTurnId: 't1' } },
  ]);
  const identity = { ...nasty, session_id: id, parent_session_id: 'p', status: 'ready' };
  expect(await client.listProjections('subagentIdentity')).toMatchObject({
    projections: [{ sessionId: id, sequence: 1, value: identity }],
    cursor: null,
  });
  expect((await client.listSessionProjections(id)).projections.map(({ key }) => key)).toEqual(['channelState', 'subagentIdentity']);
  expect((await client.listChannelBindings(id)).bindings).toEqual([
    { address: '["tg","a","c"]', sequence: 2, data: { ...address, ...nasty } },
  ]);
  expect((await client.listChannelDeliveries(id, { state: 'failed' })).deliveries).toMatchObject([
    { deliveryId: 'd', error: 'no', data: nasty },
  ]);
  expect((await client.listContextWindows(id)).windows).toMatchObject([{ windowId: 'w1', isCurrent: true }]);
  expect((await client.listContextNotes(id)).notes).toEqual([{ path: 'plan/a & b', bytes: 5, updatedSequence: 7 }]);
  expect(await client.getContextNote(id, 'plan/a & b')).toEqual({ path: 'plan/a & b', content: 'first', updatedSequence: 7 });
  expect((await client.listContextHistory(id)).items).toMatchObject([{ itemId: 'item-6', windowId: 'w1', content: 'find the fox' }]);
  expect((await client.searchContextHistory(id, 'fox -cat', { mode: 'words', role: 'user' })).matches).toMatchObject([{ sequence: 6 }]);
  expect((await client.searchContextHistory(id, 'fox -cat')).matches).toEqual([]);
});
