import type { Command } from 'commander';
import { findEmbeddedPostgres, openDb, startEmbeddedPostgres, type Db } from '@runplane/database';
import { postgresDir, readConfig } from '../config';

/** Where a command writes and which store it works on. */
export class Terminal {
  out(text: string): void {
    process.stdout.write(text);
  }

  err(text: string): void {
    process.stderr.write(text);
  }

  /** One result: as JSON when asked for, else as the words for a person. */
  print(command: Command, result: unknown, human: () => string): void {
    const { json } = command.optsWithGlobals<{ json?: boolean }>();
    this.out(`${json === true ? JSON.stringify(result, undefined, 2) : human()}\n`);
  }
}

/** Runs `work` on the URL of the store that the command line or the environment names; starts its embedded PostgreSQL if need be. */
export async function withDatabaseUrl<T>(command: Command, work: (url: string) => Promise<T>): Promise<T> {
  const { databaseUrl } = command.optsWithGlobals<{ databaseUrl?: string }>();
  const config = await readConfig(process.env);
  const given = databaseUrl ?? config.databaseDirectUrl ?? config.databaseUrl;
  if (given !== undefined) return work(given);
  const dataDir = postgresDir(config.dataDir);
  const running = await findEmbeddedPostgres(dataDir);
  if (running !== undefined) return work(running);
  const postgres = await startEmbeddedPostgres({ dataDir, durability: 'server-default' });
  try {
    return await work(postgres.url);
  } finally {
    await postgres.stop();
  }
}

export function withDb<T>(command: Command, work: (db: Db) => Promise<T>): Promise<T> {
  return withDatabaseUrl(command, async (url) => {
    const db = await openDb({ url, poolMax: 2, applicationName: 'runplane-cli' });
    try {
      return await work(db);
    } finally {
      await db.close();
    }
  });
}

/** Columns side by side, for a person. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
