import { createClient, type Client } from '@runplane/client';
import { acceptSubmission } from '@runplane/sessions';
import { Agent, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { OTHER_TENANT, TENANT, useApi } from '../support/test-api';

// Submissions, copies and the deletion of sessions over HTTP, by the client.

const api = useApi();
let client: Client;
let other: Client;
beforeAll(async () => {
  await api.app.listen({ host: '127.0.0.1', port: 0 });
  const url = `http://127.0.0.1:${(api.app.server.address() as AddressInfo).port}`;
  client = createClient({ url, apiKey: api.adminKey });
  other = createClient({ url, apiKey: await api.makeKey(['sessions:read', 'sessions:write'], OTHER_TENANT) });
});

test('a submission is accepted with 202, repeated with 200, read, counted, listed and ended', async () => {
  await client.createSession({ id: 's/1' });
  const send = (headers: Record<string, string>, body: unknown = { kind: 'turn', payload: { text: 'hi' } }) =>
    api.call('POST', '/v1/sessions/s%2F1/submissions', { headers, body });
  expect(await send({ 'idempotency-key': 'op-1' })).toMatchObject({ status: 202, body: { status: 'accepted', acceptedSequence: 0 } });
  expect(await send({ 'idempotency-key': 'op-1' })).toMatchObject({ status: 200, body: { status: 'duplicate', state: 'pending' } });
  expect(await send({})).toMatchObject({ status: 400, body: { code: 'idempotency_key_required' } });
  expect(await send({ 'idempotency-key': 'op-1' }, { kind: 'turn' })).toMatchObject({
    status: 409,
    body: { code: 'idempotency_conflict' },
  });
  expect(await send({ 'idempotency-key': 'op-2' }, { kind: 'turn', expectedRevision: 7 })).toMatchObject({
    status: 409,
    body: { code: 'revision_conflict', data: { lastSequence: 0 } },
  });
  expect(await send({ 'idempotency-key': 'op-2' }, { kind: 'turn', payload: { 'a\u0000': 1 } })).toMatchObject({ status: 400 });

  const second = await client.acceptSubmission('s/1', { kind: 'note' }, { operationId: 'op-2' });
  expect(await client.getSubmissionReceipt('s/1', 'op-2')).toEqual({ ...second, status: 'duplicate' });
  expect(await client.countSubmissions('s/1')).toEqual({ unfinished: 2, turns: 1 });
  const listed: string[] = [];
  for await (const { operationId } of client.iterateSubmissions('s/1')) listed.push(operationId);
  expect(listed).toEqual(['op-1', 'op-2']);
  expect((await client.listSubmissions(undefined, { limit: 1 })).submissions).toHaveLength(1);
  expect(await client.endSubmission('s/1', 'op-1', { state: 'failed', error: 'no' })).toMatchObject({
    changed: true,
    submission: { lastError: 'no' },
  });
  expect(await client.getSubmission('s/1', 'op-1')).toMatchObject({ state: 'failed', endedSequence: 2 });
  await expect(client.endSubmission('s/1', 'op-2', { state: 'completed', claimEpoch: 3 })).rejects.toMatchObject({
    status: 409,
    code: 'claim_lost',
  });
  await expect(other.getSubmission('s/1', 'op-1')).rejects.toMatchObject({ status: 404 });
});

test('a submission is claimed by whoever waits, kept, given back, ended under its claim, and queued again when it has failed', async () => {
  await client.createSession({ id: 'w1' });
  const [waiting] = [client.claimSubmissions({ owner: 'w', kind: 'work', leaseMs: 20_000 }, { waitSeconds: 20 })];
  await client.acceptSubmission('w1', { kind: 'work', payload: { n: 1 } }, { operationId: 'a' });
  await client.acceptSubmission('w1', { kind: 'work' }, { operationId: 'b' });
  const [a] = await waiting;
  expect(a).toMatchObject({ sessionId: 'w1', operationId: 'a', payload: { n: 1 }, epoch: 2, attempts: 1, attemptsLeft: 9 });
  expect(await client.claimSubmissions({ owner: 'v', kind: 'work' })).toEqual([]);
  expect(await client.renewSubmission('w1', 'a', { epoch: 2 })).toMatchObject({ claimRemainingMs: 30_000 });
  const named = { sessionId: 'w1', operationId: 'a', epoch: 2 };
  expect(await client.renewSubmissions({ claims: [named] })).toMatchObject([{ verdict: 'ok' }]);
  expect(await client.releaseSubmission('w1', 'a', { epoch: 2, error: 'later', delayMs: 0 })).toMatchObject({
    attempts: 1,
    lastError: 'later',
  });
  const [again] = await client.claimSubmissions({ owner: 'w', kind: 'work' });
  await expect(client.renewSubmission('w1', 'a', { epoch: 2 })).rejects.toMatchObject({ status: 409, code: 'claim_lost' });
  const { epoch } = again as { epoch: number };
  expect(await client.settleSubmissions([{ ...named, epoch, outcome: 'failed', error: 'no' }])).toMatchObject([
    { verdict: 'ok', state: 'failed' },
  ]);
  expect(await client.requeueSubmission('w1', 'a')).toMatchObject({ changed: true, submission: { place: 3, state: 'pending' } });
  expect((await client.listSubmissions('w1')).submissions.map(({ operationId }) => operationId)).toEqual(['b', 'a']);
});

test('a session goes out as lines and comes in as another tenant’s, is forked, and is deleted', async () => {
  await client.createSession({ id: 'c1', note: 'é' });
  await client.acceptSubmission('c1', { kind: 'turn' }, { operationId: 'op' });
  await client.endSubmission('c1', 'op', { state: 'completed' });
  let lines = '';
  for await (const part of client.exportSession('c1')) lines += part;
  expect(lines.split('\n')).toHaveLength(4);
  expect(await other.importSession(lines)).toEqual({ sessionId: 'c1', copiedThrough: 1, lastSequence: 1, closed: 0 });
  let again = '';
  for await (const part of other.exportSession('c1')) again += part;
  expect(again).toBe(lines);
  await expect(other.importSession(lines)).rejects.toMatchObject({ status: 409, code: 'session_exists' });
  await expect(other.importSession('{"type":"session","id":"x"}\nno')).rejects.toMatchObject({
    status: 400,
    code: 'invalid_import',
    data: { line: 2 },
  });
  expect(await api.call('POST', '/v1/session-imports', { body: { type: 'session' } })).toMatchObject({
    status: 400,
    body: { code: 'invalid_request' },
  });

  expect(await client.forkSession('c1', { newSessionId: 'c2', throughSequence: 0 })).toMatchObject({ closed: 1, copiedThrough: 0 });
  const deleted = await client.deleteSession('c2', { reason: 'done' });
  expect(await client.deleteSession('c2')).toEqual({ ...deleted, changed: false });
  await expect(client.getSessionLog('c2')).rejects.toMatchObject({ status: 410, code: 'session_deleted' });
  await expect(client.getSession('c2')).rejects.toMatchObject({ status: 410 });
  await expect(other.deleteSession('c2')).rejects.toMatchObject({ status: 404 });
  await expect(client.deleteRun('run-none')).rejects.toMatchObject({ status: 404, code: 'run_not_found' });
});

test('of twenty twins that accept one submission one does, and all have its receipt', async () => {
  await client.createSession({ id: 'twins' });
  const submission = { kind: 'turn', expectedRevision: -1 };
  const receipts = await Promise.all(
    Array.from({ length: 20 }, () => acceptSubmission(api.db, { tenantId: TENANT, sessionId: 'twins', operationId: 'op', submission })),
  );
  expect(receipts.filter(({ status }) => status === 'accepted')).toHaveLength(1);
  expect(new Set(receipts.map(({ submissionId }) => submissionId)).size).toBe(1);
});

test('an import that is refused before all of it has come does not spoil its connection', async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const { port } = api.app.server.address() as AddressInfo;
  const headers = { authorization: `Bearer ${api.adminKey}`, 'content-type': 'application/x-ndjson' };
  const send = (method: string, path: string, body?: string) =>
    new Promise<number | undefined>((resolve, reject) => {
      const sent = request({ port, agent, method, path, headers, timeout: 5_000 }, (answer) => {
        answer.resume().once('end', () => resolve(answer.statusCode));
      });
      sent.once('timeout', () => sent.destroy(new Error('no answer'))).once('error', reject);
      sent.end(body);
    });
  expect(await send('POST', '/v1/session-imports', `{"type":"session","id":"large"}\n${'x'.repeat(4_000_000)}`)).toBe(400);
  expect(await send('GET', '/v1/session-logs')).toBe(200);
  agent.destroy();
});
