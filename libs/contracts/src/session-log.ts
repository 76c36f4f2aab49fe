import type { JsonObject } from './json';

/** An event of a session's log as folds see it. `sequence` counts 0, 1, 2 … in its session; `time` in milliseconds since 1970, UTC. */
export interface SessionLogEvent {
  readonly sequence: number;
  readonly type: string;
  readonly time: number;
  readonly turnId: string | null;
  readonly stepId: string | null;
  readonly data: JsonObject;
}

/**
 * A view of a session's log that a team registers: `openDb({ projections: [...] })`. Pure: the same events give the same value, in every
 * process. The value is kept per session under `key` with the version; raise the version with every change of the rules, and rebuild.
 *
 * An `apply` that throws does not refuse the event: the view of that session is stale from there on, and says why, until it is rebuilt.
 */
export interface SessionProjection<Value extends JsonObject = JsonObject> {
  /** An identifier; those of the built-in projections are taken. */
  readonly key: string;
  readonly version: number;
  /** Whether events of this type can change the value; of others `apply` is not called. */
  touches(type: string): boolean;
  initial(sessionId: string): Value;
  apply(value: Value, event: SessionLogEvent): Value;
}
