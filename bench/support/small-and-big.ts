import { migrate, openDb, type Db } from '@runplane/database';
import type pg from 'pg';
import { describeMachine, openPlainPool, startBenchStore } from './store';

/** One of the two stores that are compared. */
export interface ComparedStore<Size> {
  readonly size: Size;
  readonly url: string;
  /** What is measured goes through this. */
  readonly db: Db;
  /** For set-up and checks only. */
  readonly admin: pg.Pool;
}

export interface SmallAndBig<Size, Report> {
  readonly applicationName: string;
  readonly small: Size;
  readonly big: Size;
  readonly load: (store: ComparedStore<Size>) => Promise<void>;
  readonly compare: (small: ComparedStore<Size>, big: ComparedStore<Size>) => Promise<Report>;
  readonly say: (line: string) => void;
}

/** For the load: rows of a table made in one transaction stay out of the log, and no checkpoint comes in between. */
const SETTINGS = { wal_level: 'minimal', max_wal_senders: '0', max_wal_size: '8GB', checkpoint_timeout: '30min' };

/** Compares a small store with a big one: two databases on one server, so that they differ in nothing else; gone when the comparison ends. */
export async function compareSmallAndBig<Size, Report>(bench: SmallAndBig<Size, Report>): Promise<Report> {
  const server = await startBenchStore(SETTINGS);
  const opened: ComparedStore<Size>[] = [];
  const open = async (url: string, size: Size): Promise<ComparedStore<Size>> => {
    const db = await openDb({ url, poolMax: 4, applicationName: bench.applicationName, onError: () => undefined });
    const store = { size, url, db, admin: openPlainPool(url, 2) };
    opened.push(store);
    await bench.load(store);
    return store;
  };
  try {
    bench.say(await describeMachine(server.admin));
    await server.admin.query('CREATE DATABASE small');
    const smallUrl = new URL(server.url);
    smallUrl.pathname = '/small';
    await migrate(smallUrl.toString());
    const small = await open(smallUrl.toString(), bench.small);
    const big = await open(server.url, bench.big);
    await server.admin.query('CHECKPOINT');
    return await bench.compare(small, big);
  } finally {
    for (const { db, admin } of opened) {
      await db.close();
      await admin.end();
    }
    await server.stop();
  }
}
