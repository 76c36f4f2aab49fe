import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { createClient } from '@runplane/client';
import { BackendProfile } from '@runplane/contracts';
import { readConfig } from './config';
import { runnersHaveEnded, stopRunners } from './demo/runner-processes';
import { DemoFailed } from './demo/demo-failed';
import type { DemoKafka } from './demo/kafka';
import { PROFILE, tellStory } from './demo/story';
import { Timeline } from './demo/timeline';
import { serve, type Server } from './serve';

// `npm run demo [-- [--keep] [--kafka] [command line …]]`: the main job from end to end on this machine, nothing else needed but what
// `--kafka` asks for. Everything lives in a
// temporary folder and goes with it. Exit code 0 says that every step happened; anything else comes with the step that did not.

const USAGE = `npm run demo [-- [--keep] [--kafka] [command line …]]

  --keep         stay up at the end, until Ctrl-C
  --kafka        with Apache Kafka, which is down while the turns run: what happened arrives in order (needs Java 17, and Maven once)
  command line   runs this instead of the demo's own program: in an empty folder, with the turn as a JSON line on standard input
`;

async function main(args: readonly string[], signal: AbortSignal): Promise<void> {
  const { flags, command } = parseArgs(args);
  const timeline = new Timeline(process.stdout);
  const dataDir = await mkdtemp(path.join(os.tmpdir(), 'runplane-demo-'));
  let server: Server | undefined;
  let kafka: DemoKafka | undefined;
  try {
    if (flags.includes('--kafka')) kafka = await (await import('./demo/kafka.js')).DemoKafka.start(timeline);
    timeline.chapter('Runplane: PostgreSQL, API and dispatcher start');
    const config = {
      ...(await readConfig({ RUNPLANE_DATA_DIR: dataDir, PORT: '0', ...kafka?.environment })),
      backends: { [PROFILE]: backendOf(command) },
    };
    server = await serve({ config, logger: false });
    const { url, firstKey } = server;
    if (firstKey === undefined) throw new DemoFailed('no key was made');
    timeline.check(`ready: ${url}`);
    await kafka?.goDown();

    const client = createClient({ url, apiKey: firstKey });
    await tellStory({
      client,
      timeline,
      workspaceRoot: path.join(config.workspaceRoot, 'default'),
      isOwnProgram: command === undefined,
      signal,
    });
    if (!(await runnersHaveEnded(path.join(dataDir, 'runners'), 5_000))) throw new DemoFailed('a runner process is still there');
    timeline.check('every runner process has ended');
    await kafka?.comeBack(client);
    await showAround(timeline, server, flags.includes('--keep'), signal);
  } finally {
    await stopRunners(path.join(dataDir, 'runners'));
    await server?.close();
    await kafka?.close();
    await rm(dataDir, { recursive: true, force: true });
  }
}

function parseArgs(args: readonly string[]): { flags: readonly string[]; command: readonly string[] | undefined } {
  const end = args.findIndex((arg) => !arg.startsWith('--') || arg === '--');
  const [flags, rest] = end === -1 ? [args, []] : [args.slice(0, end), args.slice(end + (args[end] === '--' ? 1 : 0))];
  const unknown = flags.find((flag) => flag !== '--keep' && flag !== '--kafka');
  if (unknown !== undefined) throw new DemoFailed(`${unknown} is no option.\n\n${USAGE}`);
  return { flags, command: rest.length === 0 ? undefined : rest };
}

/** Standard input ends after the turn, as most command lines expect. */
function backendOf(command: readonly string[] | undefined): BackendProfile {
  return BackendProfile.parse({
    command: command ?? [process.execPath, path.join(__dirname, 'demo/agent.js')],
    stdin: 'turn',
    graceMs: 5_000,
  });
}

async function showAround(timeline: Timeline, { url, db, firstKey }: Server, keep: boolean, signal: AbortSignal): Promise<void> {
  timeline.chapter('Look around');
  if (!keep) {
    timeline.say('npm run demo -- --keep    leaves this demo running, to look at its API and database');
    timeline.say('npm start                 serves until stopped; what it can do is at http://127.0.0.1:3000/docs');
    timeline.say('npm run studio            opens its database in Prisma Studio');
    return;
  }
  timeline.say(`API        ${url}/docs`);
  timeline.say(`Key        ${firstKey}`);
  timeline.say(`Database   DATABASE_URL='${db.options.url}' npm run studio`);
  timeline.say('Ctrl-C ends the demo and removes everything.');
  await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
}

const interrupt = new AbortController();
for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => interrupt.abort(new DemoFailed('interrupted')));

main(process.argv.slice(2), interrupt.signal).then(
  () => process.exit(0),
  (error: unknown) => {
    if (interrupt.signal.aborted) process.exit(130);
    console.error(error instanceof DemoFailed ? `\nThe demo failed: ${error.message}` : error);
    process.exit(1);
  },
);
