import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { buildApp, createApiKey } from '@runplane/api';
import { TENANT } from '../append/claimed-turns';
import type { ClientsTask } from './http-clients';
import type { WaitersCase, WaitersSetting } from './waiters-case';

/** Long polls and event streams over HTTP. The API is in this process, whose memory is measured; its clients are in another. */
export async function prepareHttp({ db, waiters, runIds, afterSeq, onEvent }: WaitersSetting): Promise<WaitersCase> {
  const { key } = await createApiKey(db.sql, { tenantId: TENANT, name: 'bench', scopes: ['runs:read'] });
  const app = await buildApp({ db, logger: false });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  let clients: ChildProcess | undefined;
  return {
    start: async () => {
      const child = (clients = fork(path.join(__dirname, 'http-clients.js')));
      child.on('message', onEvent);
      const task: ClientsTask = { url, key, waiters, runIds, afterSeq };
      await once(child, 'spawn');
      child.send(task);
    },
    close: async () => {
      if (clients !== undefined && clients.exitCode === null) {
        clients.kill('SIGKILL');
        await once(clients, 'exit');
      }
      await app.close();
    },
  };
}
