export { backendPid, describeBackends, openClient, waitUntilBlocked, type Backend, type RawQueries } from './blocked';
export { withClockAt } from './clock';
export { eventually } from './eventually';
export { waitForHorizon } from './horizon';
export { startTcpProxy, type Fate, type TcpProxy } from './tcp-proxy';
export { assertInvariants, assertNothingOpen, findViolations, INVARIANTS_FILE, type Violation } from './invariants';
export {
  createTestDatabase,
  dropTestDatabase,
  testServerUrl,
  useDatabase,
  type TestDatabase,
  type TestDatabaseOptions,
} from './test-database';
export { startTestServer } from './test-server';
