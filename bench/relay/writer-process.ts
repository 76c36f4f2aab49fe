import { openDb } from '@runplane/database';
import { appendSteadily, type Steady } from './steady-appends';

// Appends at a steady rate, and tells when each append was answered: the writer of a delay between two processes.

async function write(url: string, steady: Steady): Promise<void> {
  const db = await openDb({ url, applicationName: 'bench-writer', onError: () => undefined });
  try {
    process.send?.(await appendSteadily(db, steady));
  } finally {
    await db.close();
    process.disconnect();
  }
}

const [url = '', steady = '{}'] = process.argv.slice(2);
void write(url, JSON.parse(steady) as Steady);
