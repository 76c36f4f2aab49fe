import { appendFile, readFile, writeFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

// The program that the demo runs: it stands for any agent. It gets its turn as a JSON line on standard input, works on the files of its
// folder, and says on standard output what it does.

const STEP_MS = 450;

interface Turn {
  readonly type: string;
  readonly payload: { readonly text?: string; readonly chapters?: number };
}

async function main(): Promise<void> {
  const { payload } = await readTurn();
  const { text = 'nothing in particular', chapters = 4 } = payload;
  console.log(`The task: ${text}`);
  const history = await readFile('history.txt', 'utf8').catch(() => '');
  const turns = history.split('\n').filter((line) => line !== '').length;
  console.log(turns === 0 ? 'The folder is new.' : `I remember ${turns} earlier turn${turns === 1 ? '' : 's'} of this session.`);
  await appendFile('history.txt', `${text}\n`);

  for (let chapter = 1; chapter <= chapters; chapter += 1) {
    await sleep(STEP_MS);
    await writeFile(`turn-${turns + 1}-chapter-${chapter}.md`, `# Chapter ${chapter}\n\n${text}\n`);
    console.log(`Wrote turn-${turns + 1}-chapter-${chapter}.md ✍`);
  }
  await sleep(STEP_MS);
  console.error('(a remark on standard error)');
  console.log('Done.');
}

async function readTurn(): Promise<Turn> {
  for await (const line of createInterface({ input: process.stdin })) return JSON.parse(line) as Turn;
  throw new Error('there was no turn on standard input');
}

process.on('SIGTERM', () => {
  console.log('Asked to stop: putting the pen down.');
  process.exit(0);
});
main().then(
  () => process.exit(0),
  (error: unknown) => {
    console.error(error);
    process.exit(1);
  },
);
