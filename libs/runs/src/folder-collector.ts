import { newId } from '@runplane/contracts';
import { lstat, mkdir, readdir, realpath, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { StorageCollector } from './collect-storage';

/** Below the root, beside the tenants' folders: no tenant's id begins with a point. */
const GRAVES = '.deleting';

/**
 * Deletes session storage of kind `folder`: `<root>/<tenant>/<name>`, and nothing that a name or a symbolic link could lead to outside of the
 * tenant's own folder. The folder is moved aside first, in one step, so that it is either there or gone; its content is removed afterwards,
 * what a crash leaves of that by the next start.
 */
export function createFolderCollector({ root }: { root: string }): StorageCollector {
  const graves = path.join(root, GRAVES);
  let cleared: Promise<void> | undefined;
  return {
    kinds: ['folder'],
    async collect({ tenantId, name }, { signal }) {
      await (cleared ??= clear(graves).catch((error: unknown) => {
        cleared = undefined; // the next call tries again
        throw error;
      }));
      const folder = await folderOf(path.join(root, tenantId), name);
      if (folder === undefined) return;
      await mkdir(graves, { recursive: true }); // it may have been tidied away
      const grave = path.join(graves, newId('gone'));
      signal.throwIfAborted();
      await rename(folder, grave).catch(async (error: NodeJS.ErrnoException) => {
        // Either may be missing; only the folder's own absence is what was asked for.
        if (error.code !== 'ENOENT' || (await lstat(folder).catch(absent)) !== undefined) throw error;
      });
      await rm(grave, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

/** The folder's path, undefined when there is none. A name that leaves the tenant's folder is refused, also by way of a link. */
async function folderOf(home: string, name: string): Promise<string | undefined> {
  const folder = path.resolve(home, name);
  if (!folder.startsWith(home + path.sep)) throw new Error('the name of the folder leaves its root');
  const [realHome, realParent] = await Promise.all([home, path.dirname(folder)].map((each) => realpath(each).catch(absent)));
  if (realHome === undefined || realParent === undefined) return undefined;
  if (realParent !== path.join(realHome, path.relative(home, path.dirname(folder))))
    throw new Error('a symbolic link leads out of the root');
  return folder;
}

async function clear(graves: string): Promise<void> {
  await mkdir(graves, { recursive: true });
  for (const grave of await readdir(graves)) await rm(path.join(graves, grave), { recursive: true, force: true, maxRetries: 3 });
}

const absent = (error: NodeJS.ErrnoException): undefined => {
  if (error.code !== 'ENOENT') throw error;
};
