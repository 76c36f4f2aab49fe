// What stands outside: launched jobs, and places held while it is asked.
import { RUNS, kubernetes, races, reconciliation } from '../places.mjs';

export const launchersGuards = [
  // Launchers: what is outside is adopted, judged and removed only when it is the right one.
  {
    name: 'a Job of that name is not ours because of its name',
    file: `${RUNS}/kubernetes-job.ts`,
    text: 'return ids?.storeId === storeId && ids.tenantId === tenantId && ids.runnerJobId === runnerJobId;',
    replacement: 'return ids !== undefined;',
    test: kubernetes("leaves somebody else's Job of that name alone and says that no repeat can help"),
  },
  {
    name: 'a Job that has ended is not adopted',
    file: `${RUNS}/kubernetes-launcher.ts`,
    text: "if (observedJob(found).state === 'active') {",
    replacement: '{',
    test: kubernetes('adopts what an earlier try has made, and follows one that has ended with the next'),
  },
  {
    name: 'a Job is removed at the version that was seen, and looked at again otherwise',
    file: `${RUNS}/kubernetes-launcher.ts`,
    text: "if (job === undefined || job.metadata?.uid !== target.uid || observedJob(job).state !== 'active') return false;",
    replacement: 'if (job === undefined) return false;',
    test: kubernetes('removes exactly the Job that it has seen: not one that has ended, not one that took its name'),
  },
  {
    name: 'a Job is gone only when the API says so of that very object',
    file: `${RUNS}/kubernetes-api.ts`,
    text: '(status === 404 && about === name)',
    replacement: 'status === 404',
    test: kubernetes('takes no 404 but that about the Job itself for its absence'),
  },
  {
    name: 'a list that has expired is read from the start',
    file: `${RUNS}/kubernetes-launcher.ts`,
    text: "if (page === 'expired') break;",
    replacement: "if (page === 'expired') return jobs;",
    test: kubernetes('lists page by page, starts over when the place has expired, and knows what has become of each Job'),
  },
  {
    name: 'a launcher that does not answer says nothing about its jobs',
    file: `${RUNS}/reconcile-runner-jobs.ts`,
    text: '      break;\n',
    replacement: '      continue;\n',
    test: reconciliation('a launcher that does not answer is asked no further, tells nothing, and hides no other launcher'),
  },
  {
    name: 'a job that cannot be asked about hides none behind it',
    file: `${RUNS}/reconcile-runner-jobs.ts`,
    text: 'await returnRunnerJobs(db, { jobs: keysOf(recorded.slice(at + 1)) });',
    replacement: '',
    test: reconciliation('a job that can never be asked about does not hide those behind it'),
  },
  {
    name: 'a job that is young is no orphan',
    file: `${RUNS}/reconcile-runner-jobs.ts`,
    text: "state === 'active' && ageMs > ORPHAN_GRACE_MS",
    replacement: "state === 'active'",
    test: reconciliation(
      'only what runs on without a run is removed: not what is young, has ended, or has a run that is open or just over',
    ),
  },
  {
    name: 'a job whose run is just over is no orphan',
    file: `${RUNS}/runner-job.sql.ts`,
    text: "WHERE r.id IS NULL OR r.finished_at <= (SELECT runplane.app_now() - ${endedForMs}::int * interval '1 millisecond')",
    replacement: 'WHERE r.id IS NULL OR (r.finished_at IS NOT NULL AND ${endedForMs}::int > 0)',
    test: reconciliation(
      'only what runs on without a run is removed: not what is young, has ended, or has a run that is open or just over',
    ),
  },

  // Places held while the outside world is asked (OWN-1 to OWN-3).
  {
    name: 'rivals for a place wait for each other',
    file: `${RUNS}/reservations.ts`,
    text: 'await lockReservationKey(tx, of);',
    replacement: '',
    test: races('fences', 'are not both let in when a creation turns into a live run'),
  },
  {
    name: 'a hold is told apart by its epoch',
    file: `${RUNS}/reservation.sql.ts`,
    text: 'owner = ${of.owner}::text AND epoch = ${of.epoch}::int',
    replacement: 'owner IS NOT NULL',
    test: races('fences', 'the late confirmation is refused'),
  },
  {
    name: 'a hold whose lease has ended is not confirmed',
    file: `${RUNS}/reservation.sql.ts`,
    text: 'AND (held.expires_at > held.now OR NOT ${live}::bool)',
    replacement: '',
    test: { file: `${RUNS}/runner-slots.int.spec.ts`, name: 'whose lease has ended cannot be prolonged or confirmed' },
  },
  {
    name: 'live runs use up the capacity of their backend',
    file: `${RUNS}/runner-slots.ts`,
    text: 'key: backendProfile, limit: maxRunners, owner, leaseMs, live }',
    replacement: 'key: backendProfile, limit: maxRunners, owner, leaseMs }',
    test: { file: `${RUNS}/backends.int.spec.ts`, name: 'runs no more than it may, over all dispatchers' },
  },
  {
    name: 'a requeued run uses up no place until it is launched again',
    file: `${RUNS}/requeue-run.ts`,
    text: 'launched_at = NULL, ',
    replacement: '',
    test: { file: `${RUNS}/backends.int.spec.ts`, name: 'two requeued runs do not wait for each other' },
  },
  {
    name: 'waiting in line costs no attempt',
    file: `${RUNS}/dispatch-intent.sql.ts`,
    text: 'attempts = t.attempts - 1, ',
    replacement: '',
    test: { file: `${RUNS}/backends.int.spec.ts`, name: 'the others wait without losing an attempt' },
  },
  {
    name: 'a job is for a command of its run',
    file: `${RUNS}/runner-jobs.ts`,
    text: 'if (command?.runId !== runId)',
    replacement: 'if (command === undefined)',
    test: { file: `${RUNS}/runner-jobs.int.spec.ts`, name: 'is refused for a command of another run' },
  },
  {
    name: 'a retention fence leaves a run whose runner lives',
    file: `${RUNS}/retention-fence.ts`,
    text: 'if (lease !== undefined && isLive(lease.expiresInMs)) {',
    replacement: 'if (lease === null) {',
    test: races('fences', 'that meets a claim leaves the run to its runner'),
  },
];
