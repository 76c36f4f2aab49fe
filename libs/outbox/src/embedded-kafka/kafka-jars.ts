import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';

export const KAFKA_VERSION = '4.3.1';
const SLF4J_VERSION = '1.7.36';
const COPY_GOAL = 'org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies';
const JAVA_MIN = 17;
/** A slow line takes minutes; a machine without one must not wait for ever. */
const FETCH_TIMEOUT_MS = 900_000;

/** Kafka cannot be had or started on this machine; the message says what to do. */
export class EmbeddedKafkaError extends Error {
  override readonly name = 'EmbeddedKafkaError';
}

/** What this machine lacks to start Kafka, in words; undefined when it has everything. */
export function missingForKafka(): string | undefined {
  const java = spawnSync('java', ['-version'], { encoding: 'utf8' });
  const version = Number(/version "(\d+)/.exec(java.stderr ?? '')?.[1] ?? NaN);
  if (!(version >= JAVA_MIN)) return `Java ${JAVA_MIN} or newer (java on the PATH${Number.isNaN(version) ? '' : ` is ${version}`})`;
  if (!existsSync(jarsDir()) && spawnSync('mvn', ['-version']).status !== 0) return 'Maven (mvn on the PATH), to fetch Kafka once';
  return undefined;
}

/**
 * The folder with the jars of Apache Kafka: from Maven Central on the first call of a user (some 45 MB; Maven's lines go to standard error),
 * from the cache in the home folder on all others. Errors: EmbeddedKafkaError.
 */
export async function ensureKafkaJars(): Promise<string> {
  const missing = missingForKafka();
  if (missing !== undefined)
    throw new EmbeddedKafkaError(`Kafka needs ${missing}. On Debian: apt-get install openjdk-17-jre-headless maven`);
  const target = jarsDir();
  if (existsSync(target)) return target;
  // Beside its place first: what is killed in the middle leaves no half of it behind, and of two at once the first wins.
  const draft = `${target}.new-${process.pid}`;
  try {
    await mkdir(draft, { recursive: true });
    await writeFile(path.join(draft, 'pom.xml'), POM);
    console.error(`fetching Apache Kafka ${KAFKA_VERSION} from Maven Central to ${target}`);
    const maven = spawn('mvn', ['-B', COPY_GOAL, '-DoutputDirectory=.', '-DincludeScope=runtime'], {
      cwd: draft,
      stdio: ['ignore', 2, 2],
      timeout: FETCH_TIMEOUT_MS,
    });
    const [code] = (await once(maven, 'exit')) as [number | null];
    if (code !== 0)
      throw new EmbeddedKafkaError(`Maven could not fetch Apache Kafka ${KAFKA_VERSION} (exit code ${code}); its lines say why`);
    await rename(draft, target).catch((error: unknown) => {
      if (!existsSync(target)) throw error;
    });
    return target;
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

function jarsDir(): string {
  const cache = process.env['XDG_CACHE_HOME'];
  return path.join(cache === undefined || cache === '' ? path.join(os.homedir(), '.cache') : cache, 'runplane', `kafka-${KAFKA_VERSION}`);
}

const dependency = (group: string, artifact: string, version: string): string =>
  `<dependency><groupId>${group}</groupId><artifactId>${artifact}</artifactId><version>${version}</version></dependency>`;

const POM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>runplane</groupId>
  <artifactId>kafka-broker</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    ${dependency('org.apache.kafka', 'kafka_2.13', KAFKA_VERSION)}
    ${dependency('org.slf4j', 'slf4j-simple', SLF4J_VERSION)}
  </dependencies>
</project>
`;
