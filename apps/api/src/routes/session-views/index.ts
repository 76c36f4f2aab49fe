import type { Route } from '..';
import { getContextNoteRoute } from './get-context-note';
import { getSessionSnapshotRoute } from './get-session-snapshot';
import { listChannelBindingsRoute } from './list-channel-bindings';
import { listChannelDeliveriesRoute } from './list-channel-deliveries';
import { listContextHistoryRoute } from './list-context-history';
import { listContextNotesRoute } from './list-context-notes';
import { listContextWindowsRoute } from './list-context-windows';
import { listProjectionsRoute } from './list-projections';
import { listRecoveryCandidatesRoute } from './list-recovery-candidates';
import { listSessionProjectionsRoute } from './list-session-projections';
import { searchContextHistoryRoute } from './search-context-history';

export const sessionViewRoutes: readonly Route[] = [
  getSessionSnapshotRoute,
  listRecoveryCandidatesRoute,
  listProjectionsRoute,
  listSessionProjectionsRoute,
  listChannelBindingsRoute,
  listChannelDeliveriesRoute,
  listContextWindowsRoute,
  listContextNotesRoute,
  getContextNoteRoute,
  listContextHistoryRoute,
  searchContextHistoryRoute,
];
