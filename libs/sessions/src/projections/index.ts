import type { SessionProjection } from '@runplane/contracts';
import { isTx, type At } from '@runplane/database';
import { approvalProjection } from './approval';
import { channelProjection } from './channel';
import { contextProjection } from './context';
import type { Projection } from './projection';
import { snapshotProjection } from './snapshot';
import { subagentProjection } from './subagent';
import { submissionProjection } from './submission';
import { teamProjection } from './team';
import { userInputProjection } from './user-input';

/**
 * The built-in projections, in the order in which an append asks and feeds them: submission, subagent, channel, context, user input,
 * approval, snapshot. A new one is added here, and nowhere else.
 */
export const PROJECTIONS: readonly Projection[] = [
  submissionProjection,
  subagentProjection,
  channelProjection,
  contextProjection,
  userInputProjection,
  approvalProjection,
  snapshotProjection,
];

/** Stored on each head: whose number is another has views that older rules have made, and a rebuild repairs them. */
export const VIEWS_VERSION = PROJECTIONS.reduce((sum, { version }) => sum + version, 1);

const REGISTRIES = new WeakMap<readonly SessionProjection[], readonly Projection[]>();

/** What an append at this handle feeds: the built-in projections, then those that the team has registered (openDb). */
export function projectionsOf(at: At): readonly Projection[] {
  const registered = isTx(at) ? at.projections : at.options.projections;
  let all = REGISTRIES.get(registered);
  if (all === undefined) {
    all = [...PROJECTIONS, ...registered.map(teamProjection)];
    REGISTRIES.set(registered, all);
  }
  return all;
}
