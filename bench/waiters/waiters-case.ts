import type { Db } from '@runplane/database';

export interface WaitersSetting {
  readonly db: Db;
  /** Half of the waiters poll, half follow a stream; they are spread evenly over the runs. */
  readonly waiters: number;
  readonly runIds: readonly string[];
  /** The sequence behind which everybody waits. */
  readonly afterSeq: number;
  /** Told of each event that reaches a waiter. */
  readonly onEvent: (latencyMs: number) => void;
}

/** Waiters of one kind, before they wait. */
export interface WaitersCase {
  start(): Promise<void>;
  close(): Promise<void>;
}

/** The text of an event carries the moment of its sending; the clock is the machine's, the same in all processes. */
export const stamp = (): string => String(process.hrtime.bigint());
export const latencyOf = (text: unknown): number => Number(process.hrtime.bigint() - BigInt(String(text))) / 1e6;

/** Which run the n-th waiter waits for, and how. */
export const isPoll = (n: number): boolean => n % 2 === 0;
export const runOf = (runIds: readonly string[], n: number): string => runIds[Math.floor(n / 2) % runIds.length] ?? '';
