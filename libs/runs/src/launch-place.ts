import { type BackendProfile, BackendProfiles, contentHash, workspacePath } from '@runplane/contracts';
import { LaunchFailed, type LaunchRequest } from './launcher';

// What every launcher asks of a request: its profile, and a folder below a root.

export type Backends = BackendProfiles | (() => BackendProfiles | Promise<BackendProfiles>);

export async function requireBackend(backends: Backends, profile: string): Promise<BackendProfile> {
  const profiles = BackendProfiles.parse(typeof backends === 'function' ? await backends() : backends);
  const backend = Object.hasOwn(profiles, profile) ? profiles[profile] : undefined;
  if (backend !== undefined) return backend;
  throw new LaunchFailed(`There is no backend profile '${profile}': the operator configures them.`, {
    permanent: true,
    failureKind: 'schema-invalid',
  });
}

/** `workspaceRef.path`, or a folder of the run's own. Symbolic links are judged by the runner, when it opens the folder. */
export function requireWorkspace({ workspaceRef, runId }: LaunchRequest): string {
  const folder = workspacePath.safeParse(workspaceRef['path'] ?? `runs/${folderNameOf(runId)}`);
  if (folder.success) return folder.data;
  throw new LaunchFailed(`The workspace path is refused: it ${folder.error.issues[0]?.message ?? 'is not valid'}.`, {
    permanent: true,
    failureKind: 'workspace-refused',
  });
}

/** Ids of a caller's own may be no name of a file: too long, or one or two dots. */
export function folderNameOf(id: string): string {
  return /^\w[\w.-]{0,99}$/.test(id) ? id : contentHash(id).hash;
}
