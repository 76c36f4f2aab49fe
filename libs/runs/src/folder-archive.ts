import { createHash, randomUUID } from 'node:crypto';
import { mkdir, open, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { ArchiveNotFound } from '@runplane/contracts';
import type { ArchiveReceipt, ArchiveSink } from './archive-sink';

const KEY = /^[A-Za-z0-9_-][A-Za-z0-9._-]*(\/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$/;

/**
 * A sink that keeps each key as a file below a folder, which several processes may share. A file appears by a rename, after its bytes have
 * reached the disk: whoever sees it sees all of it, also after a crash. What a crash left half is removed by the next `put` of the key.
 */
export function createFolderArchive({ dir }: { dir: string }): ArchiveSink {
  const root = path.resolve(dir);
  return {
    async put(key, content) {
      if (!KEY.test(key)) throw new Error(`${JSON.stringify(key)} is no key of an archive`);
      const file = path.join(root, key);
      await mkdir(path.dirname(file), { recursive: true });
      const temporary = `${file}.${randomUUID()}.tmp`;
      try {
        const receipt = await writeDurably(temporary, content);
        await rename(temporary, file);
        await syncFolders(path.dirname(file), root);
        return receipt;
      } finally {
        await removeHalves(file);
      }
    },
    async get(key) {
      const handle = KEY.test(key)
        ? await open(path.join(root, key), 'r').catch((error: NodeJS.ErrnoException) => {
            if (error.code !== 'ENOENT') throw error;
          })
        : undefined;
      if (handle === undefined) throw new ArchiveNotFound(`There is no archive ${key}.`, { archiveKey: key });
      return handle.createReadStream();
    },
  };
}

async function writeDurably(file: string, content: Readable): Promise<ArchiveReceipt> {
  const handle = await open(file, 'wx');
  try {
    const hash = createHash('sha256');
    let bytes = 0;
    for await (const chunk of content as AsyncIterable<Buffer>) {
      await handle.appendFile(chunk);
      hash.update(chunk);
      bytes += chunk.length;
    }
    await handle.sync();
    return { bytes, sha256: hash.digest('hex') };
  } finally {
    await handle.close();
  }
}

/** The names of a new file and of new folders stand in the folders above: these must reach the disk as well. */
async function syncFolders(from: string, root: string): Promise<void> {
  for (let folder = from; ; folder = path.dirname(folder)) {
    const handle = await open(folder, 'r');
    await handle.sync().finally(() => handle.close());
    if (folder === root) return;
  }
}

/** Also one that another process is writing: it has lost the right to this run by then, and its rename fails. */
async function removeHalves(file: string): Promise<void> {
  const folder = path.dirname(file);
  const names = await readdir(folder);
  const halves = names.filter((name) => name.startsWith(`${path.basename(file)}.`) && name.endsWith('.tmp'));
  await Promise.all(halves.map((name) => rm(path.join(folder, name), { force: true })));
}
