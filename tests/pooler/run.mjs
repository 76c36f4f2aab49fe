// The run, outbox and API specs once more behind PgBouncer in transaction mode, as `npm run test:pooler`. Needs pgbouncer on the PATH
// (Debian: apt-get install pgbouncer) and a build. An old PgBouncer (before 1.21) knows no prepared statements, and one before 1.20 refuses start-up
// options: the stricter way is tested, with both switched off and the settings at the role.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const require = createRequire(import.meta.url);
const { startTestServer, openClient } = require('@runplane/database/testing');

const SPECS = ['run-life', 'feed', 'races', 'main-job'];
const SETTINGS = { timezone: 'UTC', lock_timeout: '4s', statement_timeout: '15s', idle_in_transaction_session_timeout: '60s' };

if (spawnSync('pgbouncer', ['--version']).status !== 0) {
  console.error('test:pooler needs pgbouncer on the PATH. On Debian: apt-get install pgbouncer');
  process.exit(2);
}

const server = await startTestServer();
const target = new URL(server.url);
const dir = mkdtempSync(path.join(os.tmpdir(), 'runplane-pooler-'));
const port = await freePort();
let pooler;
try {
  const admin = await openClient(`${server.url}/postgres`);
  for (const [name, value] of Object.entries(SETTINGS)) await admin.query(`ALTER ROLE ${target.username} SET ${name} = '${value}'`);
  await admin.end();

  const config = path.join(dir, 'pgbouncer.ini');
  writeFileSync(
    config,
    `[databases]
* = host=127.0.0.1 port=${target.port} user=${target.username} password=${target.password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 5
max_client_conn = 500
server_round_robin = 1
`,
  );
  // PgBouncer refuses to run as root.
  const asRoot = process.getuid?.() === 0;
  const uid = asRoot ? Number(spawnSync('id', ['-u', 'postgres'], { encoding: 'utf8' }).stdout) : undefined;
  if (uid !== undefined) [dir, config].forEach((file) => chownSync(file, uid, -1));
  chmodSync(dir, 0o755);
  pooler = spawn('pgbouncer', [config], { stdio: ['ignore', 'ignore', 'inherit'], ...(uid === undefined ? {} : { uid }) });
  await listening(port);

  const jest = spawn(
    process.execPath,
    [require.resolve('jest/bin/jest'), '--runInBand', ...(process.argv.length > 2 ? process.argv.slice(2) : SPECS)],
    {
      stdio: 'inherit',
      env: { ...process.env, TEST_POSTGRES_URL: server.url, TEST_POOLER_PORT: String(port) },
    },
  );
  const [code] = await once(jest, 'exit');
  process.exitCode = code ?? 1;
} finally {
  if (pooler?.exitCode === null) {
    pooler.kill('SIGTERM');
    await once(pooler, 'exit');
  }
  await server.stop();
  rmSync(dir, { recursive: true, force: true });
}

async function freePort() {
  const probe = net.createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port: free } = probe.address();
  probe.close();
  await once(probe, 'close');
  return free;
}

/** Until the pooler accepts connections; it has nothing else to wait for. */
async function listening(onPort) {
  for (let tries = 0; tries < 100; tries += 1) {
    const event = await new Promise((resolve) => {
      const socket = net.connect(onPort, '127.0.0.1');
      for (const name of ['connect', 'error']) {
        socket.once(name, () => {
          socket.destroy();
          resolve(name);
        });
      }
    });
    if (event === 'connect') return;
    await delay(50);
  }
  throw new Error(`pgbouncer does not listen on port ${onPort}`);
}
