import type { BackendProfile } from '@runplane/contracts';
import { type Backends, requireBackend } from './launch-place';
import { LaunchFailed, type Launcher } from './launcher';

/** One launcher that stands for several: the profile of a request says which of them launches. */
export function createLauncherByProfile(
  backends: Backends,
  launchers: Readonly<Partial<Record<BackendProfile['launcher'], Launcher>>>,
): Launcher {
  return {
    kind: 'by-profile',
    parts: Object.values(launchers),
    async launch(request, options) {
      const { launcher: kind } = await requireBackend(backends, request.backendProfile);
      const launcher = launchers[kind];
      if (launcher !== undefined) return { launcher: launcher.kind, ...(await launcher.launch(request, options)) };
      throw new LaunchFailed(`This process has no launcher '${kind}'.`, { permanent: true });
    },
  };
}
