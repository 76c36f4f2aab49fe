export { assertBoundary, ensureSession, getSession, resolveSessionRef, titleOfTurn, type Boundary } from './session';
export { findSession, lockSession, writeLastRun, writeThread, writeTurnEnded, writeTurnStarted, type SessionKey, type SessionRow } from './session.sql';
