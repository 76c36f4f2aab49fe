import type { ChildProcess } from 'node:child_process';
import net from 'node:net';
import { makeWorld } from '../support/route-samples';
import { startServed } from '../support/served';
import { useApi } from '../support/test-api';

const api = useApi();
const children: ChildProcess[] = [];
const sockets: net.Socket[] = [];
let isOver = false;
afterEach(() => {
  isOver = true;
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

const WAITERS = 2_000;
const BYTES_MAX = 100 * 1024 * 1024;

test('2,000 waiting clients cost one process less than 100 MB and no connection of the pool', async () => {
  const { runId } = await makeWorld(api);
  const served = await startServed({ DATABASE_URL: api.url, RUNPLANE_LOG_LEVEL: 'silent' }, children);
  const { hostname, port } = new URL(served.address);
  const metrics = async () => {
    const text = await (await fetch(`${served.address}/metrics`)).text();
    return (name: string) => Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1]);
  };
  const wait = (path: string): void => {
    const socket = net.connect(Number(port), hostname);
    // On a busy machine a connection may be dropped before it is accepted, and a poll may end before the last client has come.
    socket.on('error', () => undefined).on('close', () => isOver || wait(path)).resume(); // prettier-ignore
    socket.write(`GET ${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${api.adminKey}\r\n\r\n`);
    sockets.push(socket);
  };
  const before = await metrics();

  for (let n = 0; n < WAITERS; n += 1) {
    wait(n % 2 === 0 ? `/v1/runs/${runId}/events/stream?after=4` : `/v1/runs/${runId}/events?after=4&wait=30`);
    if (n % 50 === 49) await new Promise((resolve) => setTimeout(resolve, 20));
  }
  let after = await metrics();
  for (const late = Date.now() + 120_000; after('runplane_waiters') < WAITERS; after = await metrics()) {
    if (Date.now() > late) throw new Error(`only ${after('runplane_waiters')} wait:\n${served.output()}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }

  const bytes = after('process_resident_memory_bytes') - before('process_resident_memory_bytes');
  expect(bytes).toBeLessThan(BYTES_MAX);
  expect(after('runplane_pool_connections') - after('runplane_pool_idle')).toBeLessThanOrEqual(1); // the safety poll may be asking
  expect(after('runplane_pool_queue')).toBe(0);
});
