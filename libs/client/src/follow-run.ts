import { RunEvent, StreamEnd } from '@runplane/contracts';
import { followLog, type FollowOptions } from './follow-log';
import type { RetryPolicy } from './retry';
import type { Transport } from './transport';

/** Every event of a run after a sequence, until the run's end; see followLog. */
export function followRun(
  transport: Transport,
  policy: RetryPolicy,
  runId: string,
  options: FollowOptions,
): AsyncGenerator<RunEvent, StreamEnd, undefined> {
  const log = {
    name: `run ${runId}`,
    path: `/runs/${encodeURIComponent(runId)}/events/stream`,
    event: RunEvent,
    sequenceOf: ({ seq }: RunEvent) => seq,
    end: StreamEnd,
  };
  return followLog(transport, policy, log, { ...options, after: options.after ?? 0 });
}
