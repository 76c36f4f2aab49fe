import { spawnSync } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import type { Client } from '@runplane/client';
import type { RunEvent, RunResult, TerminalStatus } from '@runplane/contracts';
import { DemoFailed } from './demo-failed';
import type { Timeline } from './timeline';

export interface Stage {
  readonly client: Client;
  readonly timeline: Timeline;
  /** Of the demo's tenant. */
  readonly workspaceRoot: string;
  /** The demo's own program, whose files are known; false for a command line of the visitor. */
  readonly isOwnProgram: boolean;
  readonly signal: AbortSignal;
}

function demand(isSo: boolean, what: string): asserts isSo {
  if (!isSo) throw new DemoFailed(what);
}

export const PROFILE = 'demo';
const PROJECT = 'demo';
const SESSION = 'demo-session';
const FOLDER = 'demo-session';
/** Enough to be still at work when the cancel comes. */
const CHAPTERS_OF_A_LONG_TURN = 400;

/** Two turns and a cancelled one in one session, each followed live, and checked against the files, the session and the feed. */
export async function tellStory(stage: Stage): Promise<void> {
  const { timeline } = stage;
  const first = await playTurn(stage, {
    key: 'turn-1',
    title: 'A turn in a new session',
    text: 'Write a short book about durable queues.',
  });
  await expectWork(stage, first, 1);

  const second = await playTurn(stage, {
    key: 'turn-2',
    title: 'A second turn, in the same session and folder',
    text: 'Now one about leases.',
  });
  await expectWork(stage, second, 2);

  const third = await playTurn(stage, {
    key: 'turn-3',
    title: 'A third turn, cancelled while it runs',
    text: 'And now a very long one.',
    chapters: CHAPTERS_OF_A_LONG_TURN,
    cancelAfter: stage.isOwnProgram ? (event) => event.type === 'command_output' && /chapter-2/.test(textOf(event, 'text')) : isStart,
  });
  expectCancelled(stage, third);

  timeline.chapter('What is left');
  await expectFreeSession(stage);
  await expectFeed(stage, [first, second, third]);
}

interface Turn {
  readonly key: string;
  readonly title: string;
  readonly text: string;
  readonly chapters?: number;
  readonly cancelAfter?: (event: RunEvent) => boolean;
}

interface Played {
  readonly runId: string;
  readonly events: readonly RunEvent[];
  readonly result: RunResult;
  /** Of the program. */
  readonly pid: number | undefined;
}

async function playTurn({ client, timeline, signal }: Stage, { key, title, text, chapters, cancelAfter }: Turn): Promise<Played> {
  timeline.chapter(title);
  const { run } = await client.admitTurn(
    SESSION,
    {
      run: { projectId: PROJECT, backendProfile: PROFILE, workspaceRef: { path: FOLDER } },
      payload: { text, ...(chapters === undefined ? {} : { chapters }) },
    },
    { idempotencyKey: key, signal },
  );
  const events: RunEvent[] = [];
  let isCancelled = false;
  for await (const event of client.followRun(run.id, { signal })) {
    events.push(event);
    timeline.event(event);
    if (isCancelled || cancelAfter?.(event) !== true) continue;
    isCancelled = true;
    timeline.say('→ POST /v1/runs/…/cancel');
    await client.cancelRun(run.id, { reason: 'the visitor has seen enough' }, { signal });
  }
  const result = await client.waitForResult(run.id, { signal });
  expectOrder(timeline, events, result);
  const started = events.find(isStart)?.payload['extra'] as { pid?: number } | undefined;
  return { runId: run.id, events, result, pid: started?.pid };
}

function textOf({ payload }: RunEvent, field: string): string {
  const value = payload[field];
  return typeof value === 'string' ? value : '';
}

const isStart = ({ type, payload }: RunEvent): boolean => type === 'backend_status' && payload['phase'] === 'process-started';

function expectOrder(timeline: Timeline, events: readonly RunEvent[], { lastEventSeq }: RunResult): void {
  const isWithoutGap = events.every(({ seq }, index) => seq === index + 1);
  demand(isWithoutGap && events.length > 0, `the events are not numbered 1, 2, 3 …: ${events.map(({ seq }) => seq).join(' ')}`);
  const afterEnd = events.slice(events.findIndex(({ type }) => type === 'terminal_status') + 1);
  const areDiagnostics = afterEnd.length < events.length && afterEnd.every(({ type }) => type === 'backend_status');
  demand(areDiagnostics, `the run does not end with terminal_status: ${events.map(({ type }) => type).join(' ')}`);
  demand(lastEventSeq >= events.length, `the run says it has ${lastEventSeq} events, ${events.length} came`);
  timeline.check(`${events.length} events, numbered without a gap, up to the terminal one`);
}

async function expectWork({ timeline, isOwnProgram, workspaceRoot }: Stage, { result, events, pid }: Played, turn: number): Promise<void> {
  expectNoProgram(pid);
  if (!isOwnProgram) {
    expectStatus(result, ['completed', 'failed']);
    const exit = events.find(({ payload }) => payload['phase'] === 'process-exited');
    demand(exit !== undefined, 'the end of the program was not reported');
    return timeline.check(`the program has ended (${JSON.stringify(exit.payload['extra'])}), the run is ${result.status}`);
  }
  expectStatus(result, ['completed']);
  const folder = path.join(workspaceRoot, FOLDER);
  const files = (await readdir(folder)).filter((name) => name.startsWith(`turn-${turn}-`));
  demand(files.length === 4, `the program should have written 4 files in turn ${turn}, there are ${files.length} in ${folder}`);
  const history = (await readFile(path.join(folder, 'history.txt'), 'utf8')).trim().split('\n');
  demand(history.length === turn, `history.txt should have ${turn} lines, it has ${history.length}`);
  const spoken = events.filter(({ type }) => type === 'command_output').map((event) => textOf(event, 'text')).join(''); // prettier-ignore
  for (const file of files) demand(spoken.includes(`Wrote ${file}`), `the output does not speak of ${file}`);
  timeline.check(`the run is completed; the program wrote ${files.join(', ')}`);
}

function expectCancelled({ timeline, isOwnProgram }: Stage, { result, events, pid }: Played): void {
  expectNoProgram(pid);
  if (!isOwnProgram && result.status !== 'cancelled') {
    expectStatus(result, ['completed', 'failed']);
    return timeline.check('the program had ended before the cancel reached it');
  }
  expectStatus(result, ['cancelled']);
  const stages = events.map((event) => textOf(event, 'phase')).filter((phase) => phase.startsWith('cancel-'));
  demand(stages.includes('cancel-persisted') && stages.includes('cancel-delivered'), `the cancel went through ${stages.join(', ')}`);
  timeline.check('the run is cancelled, its program and everything that it started are gone');
}

function expectStatus({ status, failure }: RunResult, expected: readonly TerminalStatus[]): void {
  const why = failure === null ? '' : ` (${failure.kind}: ${failure.message})`;
  demand((expected as readonly string[]).includes(status), `the run is ${status}${why}, not ${expected.join(' or ')}`);
}

/** Its whole process group; a zombie that nobody collects is no process any more. */
function expectNoProgram(pid: number | undefined): void {
  demand(pid !== undefined, 'the start of the program was not reported');
  const { stdout } = spawnSync('ps', ['-A', '-o', 'pgid=,stat=,args='], { encoding: 'utf8' });
  const left = stdout.split('\n').filter((line) => new RegExp(`^ *${pid} +[^Z]`).test(line));
  demand(left.length === 0, `something of the program is still there: ${left.join('; ')}`);
}

async function expectFreeSession({ client, timeline, signal }: Stage): Promise<void> {
  const session = await client.getSession(SESSION, { signal });
  demand(session.activeRunId === null && session.activeCommandId === null, `the session is still busy with the run ${session.activeRunId}`);
  timeline.check(`the session is free for its next turn; its title is “${session.title}”`);
}

/** The feed is what consumers of all runs read: every event once, the events of a run in their order. */
async function expectFeed({ client, timeline, signal }: Stage, runs: readonly Played[]): Promise<void> {
  const seen = new Map(runs.map(({ runId }) => [runId, [] as number[]]));
  let total = 0;
  const missing = () => runs.some(({ runId, events }) => (seen.get(runId)?.length ?? 0) < events.length);
  const enough = AbortSignal.any([signal, AbortSignal.timeout(10_000)]);
  for await (const { runId, sequence, stream } of client.followFeed({ signal: enough })) {
    total += 1;
    if (stream === 'run' && runId !== null) seen.get(runId)?.push(sequence);
    if (!missing()) break;
  }
  for (const { runId, events } of runs) {
    const sequences = seen.get(runId) ?? [];
    demand(
      sequences.slice(0, events.length).every((seq, index) => seq === index + 1),
      `the feed has the events of ${runId} as ${sequences.join(' ')}`,
    );
  }
  timeline.check(`the feed (GET /v1/feed) has all of it: ${total} events, those of each run in order`);
}
