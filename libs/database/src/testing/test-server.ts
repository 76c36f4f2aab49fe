import { statfsSync } from 'node:fs';
import os from 'node:os';
import { startEmbeddedPostgres, temporaryDataDir, type EmbeddedPostgres } from '../embedded-postgres';

/** A throw-away PostgreSQL for ordinary tests: not durable, many connections, quick to notice a deadlock. It cannot outlive this process. */
export function startTestServer(settings: Readonly<Record<string, string>> = {}): Promise<EmbeddedPostgres> {
  return startEmbeddedPostgres({
    dataDir: temporaryDataDir(hasRoomInMemory() ? MEMORY : os.tmpdir()),
    durability: 'off',
    temporary: true,
    settings: { max_connections: '300', deadlock_timeout: '100ms', ...settings },
  });
}

/**
 * Files in memory, as Linux has it. Each spec file makes and drops a database of a thousand files, and ext4 looks past every one that went in the last
 * seconds before it makes another: that took half of the server's time.
 */
const MEMORY = '/dev/shm';

/** Far more than the data of all tests takes, some hundred megabytes. A container's folder is often one of 64. */
const ROOM_BYTES = 4 * 2 ** 30;

function hasRoomInMemory(): boolean {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    return Math.min(bavail * bsize, os.freemem(), process.constrainedMemory() || Infinity) >= ROOM_BYTES;
  } catch {
    return false; // there is no such folder
  }
}
