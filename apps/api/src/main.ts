import { redactError } from '@runplane/contracts';
import { ConfigError, readConfig } from './config';
import { serve, type Server } from './serve';

/** Everything still open is cut then: an orchestrator kills after 10 s at the earliest. */
const CLOSE_WITHIN_MS = 9_000;

async function main(): Promise<void> {
  const stop = stopSignal();
  const config = await readConfig(process.env);
  const server = await serve({ config, say: (line) => console.error(line) });
  introduce(server);
  await stop;
  setTimeout(() => {
    console.error('runplane: something did not close in time');
    process.exit(0); // what was acknowledged is in the database
  }, CLOSE_WITHIN_MS).unref();
  await server.close();
}

/** Resolves at the first SIGTERM or SIGINT, also one that comes during the start. Further ones change nothing: the end is on its way. */
function stopSignal(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => resolve());
  });
}

function introduce({ url, firstKey }: Server): void {
  console.error(`Runplane listens on ${url}; what it can do: ${url}/docs`);
  if (firstKey !== undefined) console.error(`A key for the tenant "default", shown this once: ${firstKey}`);
}

main().then(
  () => process.exit(0),
  (error: unknown) => {
    console.error(`runplane: ${redactError(error)}`);
    if (!(error instanceof ConfigError))
      console.error('It did not start. Is the database reachable, and are the migrations applied (runplane migrate)?');
    process.exit(1);
  },
);
