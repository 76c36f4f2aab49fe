import type { BackendProfile } from '@runplane/contracts';
import { type Backends, requireBackend } from './launch-place';
import { LaunchFailed, type Launcher, type ListedJob, type RecordedJob } from './launcher';

/** One launcher that stands for several: a profile names the one that launches, a job's record the one that did. */
export function createLauncherByProfile(
  backends: Backends,
  launchers: Readonly<Partial<Record<BackendProfile['launcher'], Launcher>>>,
): Required<Launcher> {
  const all = Object.values(launchers);
  const of = (kind: string): Launcher | undefined => all.find((launcher) => launcher.kind === kind);
  return {
    kind: 'by-profile',
    kinds: all.map(({ kind }) => kind),
    async launch(request) {
      const { launcher: kind } = await requireBackend(backends, request.backendProfile);
      const launcher = launchers[kind];
      if (launcher !== undefined) return { launcher: launcher.kind, ...(await launcher.launch(request)) };
      throw new LaunchFailed(`This process has no launcher '${kind}'.`, { permanent: true });
    },
    find: async (job: RecordedJob) => (await of(job.launcher)?.find?.(job)) ?? { state: 'unknown' },
    list: async () => (await Promise.all(all.map(async (launcher) => (await launcher.list?.()) ?? []))).flat(),
    remove: async (job: ListedJob) => (await of(job.launcher)?.remove?.(job)) ?? false,
  };
}
