export { assertBoundary, ensureSession, getSession, resolveSessionRef, titleOfTurn, type Boundary } from './session';
export {
  findSession,
  lockSession,
  writeFeedNumber,
  writeLastRun,
  writeThread,
  writeTurnEnded,
  writeTurnStarted,
  type SessionKey,
  type SessionRow,
} from './session.sql';
