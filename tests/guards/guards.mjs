// What must not be removable without a test that notices: [file, text, replacement, test]. `npm run test:guards` replaces one text at a time in
// a copy of the working tree and demands that the named test fails. White space in the texts does not count; a text must stand in its file exactly
// once. The name of a test is the end or any part of its full name.
import { accessGuards } from './areas/access.mjs';
import { feedGuards } from './areas/feed.mjs';
import { holdersGuards } from './areas/holders.mjs';
import { kafkaGuards } from './areas/kafka.mjs';
import { launchersGuards } from './areas/launchers.mjs';
import { locksGuards } from './areas/locks.mjs';
import { queueGuards } from './areas/queue.mjs';
import { readingGuards } from './areas/reading.mjs';
import { rebuildGuards } from './areas/rebuilds.mjs';
import { relayGuards } from './areas/relay.mjs';
import { requestsGuards } from './areas/requests.mjs';
import { retentionGuards } from './areas/retention.mjs';
import { sessionLogGuards } from './areas/session-log.mjs';
import { sessionViewsGuards } from './areas/session-views.mjs';
import { sessionsGuards } from './areas/sessions.mjs';
import { sharedStatementsGuards } from './areas/shared-statements.mjs';
import { statesGuards } from './areas/states.mjs';
import { queuedTurnGuards } from './areas/queued-turns.mjs';
import { submissionClaimGuards } from './areas/submission-claims.mjs';
import { submissionGuards } from './areas/submissions.mjs';

/** The guards of each file in areas/. */
const AREAS = {
  access: accessGuards,
  feed: feedGuards,
  holders: holdersGuards,
  kafka: kafkaGuards,
  launchers: launchersGuards,
  locks: locksGuards,
  queue: queueGuards,
  reading: readingGuards,
  rebuilds: rebuildGuards,
  relay: relayGuards,
  requests: requestsGuards,
  retention: retentionGuards,
  'session-log': sessionLogGuards,
  'session-views': sessionViewsGuards,
  sessions: sessionsGuards,
  'shared-statements': sharedStatementsGuards,
  states: statesGuards,
  'queued-turns': queuedTurnGuards,
  'submission-claims': submissionClaimGuards,
  submissions: submissionGuards,
};

export const GUARDS = Object.entries(AREAS).flatMap(([area, guards]) => guards.map((guard) => ({ area, ...guard })));
