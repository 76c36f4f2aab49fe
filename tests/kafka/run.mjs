// The specs that need a Kafka broker, as `npm run test:kafka`. Needs Java 17 and Maven on the PATH (Debian: apt-get install
// openjdk-17-jre-headless maven), and a build. The first run of a user fetches Apache Kafka from Maven Central; its lines are the progress.
// `--if-possible`: where Java or Maven is missing, or Maven cannot fetch Kafka, says so and succeeds. Other arguments go to jest.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
const { ensureKafkaJars, missingForKafka } = require('@runplane/outbox/embedded-kafka');

const ifPossible = process.argv.includes('--if-possible');
const skip = (why) => {
  console.log(`test:kafka SKIPPED, nothing of it was tested: ${why}`);
  process.exit(0);
};
const missing = missingForKafka();
if (missing !== undefined && ifPossible) skip(`this machine lacks ${missing}`);

try {
  await ensureKafkaJars();
} catch (error) {
  if (ifPossible) skip(error.message);
  console.error(`test:kafka: ${error.message}`);
  process.exit(1);
}

const config = fileURLToPath(new URL('jest.config.cjs', import.meta.url));
const args = process.argv.slice(2).filter((argument) => argument !== '--if-possible');
const jest = spawn(process.execPath, [require.resolve('jest/bin/jest'), '--config', config, '--runInBand', ...args], { stdio: 'inherit' });
const [code] = await once(jest, 'exit');
process.exitCode = code ?? 1;
