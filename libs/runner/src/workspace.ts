import { workspacePath } from '@runplane/contracts';
import { mkdir, realpath, stat } from 'node:fs/promises';
import path from 'node:path';

/** The folder lies outside its root, or is no folder. A repeat cannot help. */
export class WorkspaceRefused extends Error {
  constructor(folder: string, reason: string) {
    super(`The workspace '${folder}' is refused: it ${reason}.`);
    this.name = 'WorkspaceRefused';
  }
}

/**
 * The real path of a folder below a root, made if missing. Each part is resolved before the next one is looked at or made, so a symbolic
 * link that leads out is refused before anything outside is touched.
 */
export async function openWorkspace(root: string, folder: string): Promise<string> {
  const checked = workspacePath.safeParse(folder);
  if (!checked.success) throw new WorkspaceRefused(folder, checked.error.issues[0]?.message ?? 'is no relative path');
  await mkdir(root, { recursive: true });
  const realRoot = await realpath(root);
  let current = realRoot;
  for (const part of folder.split('/').filter((each) => each !== '' && each !== '.')) {
    current = await openPart(current, part, realRoot, folder);
  }
  return current;
}

async function openPart(parent: string, part: string, realRoot: string, folder: string): Promise<string> {
  const next = path.join(parent, part);
  await mkdir(next).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
  const real = await realpath(next).catch(() => {
    throw new WorkspaceRefused(folder, 'has a symbolic link that leads nowhere');
  });
  if (real !== realRoot && !real.startsWith(`${realRoot}${path.sep}`)) throw new WorkspaceRefused(folder, 'leads out of its root');
  if (!(await stat(real)).isDirectory()) throw new WorkspaceRefused(folder, 'is no folder');
  return real;
}
