// Where guards and their tests stand.

export const RUNS = 'libs/runs/src';
export const SESSIONS = 'libs/sessions/src';
export const CLAIMS = 'libs/database/src/claims.sql.ts';
export const MIGRATION = 'prisma/migrations/20261129140000_first_tables/migration.sql';

export const races = (file, name) => ({ file: `tests/races/${file}.spec.ts`, name });
export const runLife = (name) => ({ file: `${RUNS}/run-life.int.spec.ts`, name });
export const together = (name) => ({ file: `${RUNS}/append-coalescer.int.spec.ts`, name });
export const decisions = (name) => ({ file: `${RUNS}/run-decisions.spec.ts`, name });
export const sessions = (name) => ({ file: 'libs/sessions/src/session.int.spec.ts', name });
export const feed = (name) => ({ file: 'libs/outbox/src/read-feed.int.spec.ts', name });
export const retention = (name) => ({ file: `${RUNS}/retention.int.spec.ts`, name });
export const claims = (name) => ({ file: 'libs/database/src/claims.int.spec.ts', name });
export const schema = (name) => ({ file: 'tests/contract/schema.spec.ts', name });
export const kubernetes = (name) => ({ file: 'tests/scenarios/kubernetes-launcher.spec.ts', name });
export const reconciliation = (name) => ({ file: `${RUNS}/reconcile-runner-jobs.int.spec.ts`, name });
export const lists = (name) => ({ file: `${RUNS}/list-runs.int.spec.ts`, name });
export const eventPages = (name) => ({ file: `${RUNS}/event-pages.int.spec.ts`, name });
export const access = (name) => ({ file: 'tests/contract/http-access.spec.ts', name });
export const sessionControl = (name) => ({ file: 'libs/sessions/src/session-control.int.spec.ts', name });
export const sessionRules = (name) => ({ file: 'libs/sessions/src/session-decisions.spec.ts', name });
export const storage = (name) => ({ file: `${RUNS}/session-storage.int.spec.ts`, name });
export const sessionAppends = (name) => ({ file: `${SESSIONS}/append-session-events.int.spec.ts`, name });
export const sessionWriter = (name) => ({ file: `${SESSIONS}/session-writer.int.spec.ts`, name });
export const readingOfLog = (name) => ({ file: `${SESSIONS}/read-session-events.int.spec.ts`, name });
export const sessionLogHttp = (name) => ({ file: 'tests/contract/http-session-log.spec.ts', name });
export const channelFold = (name) => ({ file: `${SESSIONS}/projections/channel.spec.ts`, name });
export const contextFold = (name) => ({ file: `${SESSIONS}/projections/context.spec.ts`, name });
export const snapshotFold = (name) => ({ file: `${SESSIONS}/projections/snapshot.spec.ts`, name });
export const sessionViews = (name) => ({ file: `${SESSIONS}/views/views.int.spec.ts`, name });
export const rebuilds = (name) => ({ file: 'libs/sessions/src/rebuild/rebuild-session.int.spec.ts', name });
export const asking = (name) => ({ file: `${RUNS}/ask-people.int.spec.ts`, name });
export const askingSessions = (name) => ({ file: `${SESSIONS}/requests.int.spec.ts`, name });
export const askingFolds = (name) => ({ file: `${SESSIONS}/projections/requests.spec.ts`, name });
export const askingSchemas = (name) => ({ file: `${SESSIONS}/input-schema.spec.ts`, name });
