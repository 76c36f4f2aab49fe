import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { AclOperationTypes, AclPermissionTypes, AclResourceTypes, Kafka, logLevel, ResourcePatternTypes, type Admin } from 'kafkajs';
import { EmbeddedKafkaError, ensureKafkaJars } from './kafka-jars';
import { makeSecureListener, SECURE_LISTENER, type SecureAccess, type SecureListener } from './secure-listener';

// A Kafka broker (KRaft, one node) as a process, for a machine that has none: tests, benchmarks, the demo. It listens on 127.0.0.1 only,
// without credentials or with ones that are no secret, and its data goes with it. A watchdog, a shell that waits for the end of a pipe, ends it when this process has gone.

export interface EmbeddedKafka {
  /** `host:port`, the same over restarts. */
  readonly brokers: readonly string[];
  /** Where the broker keeps its log segments, one folder per partition, and `broker.log` beside them. */
  readonly dir: string;
  /** A second way in, with TLS and login; where it was asked for. */
  readonly secure: SecureAccess | undefined;
  createTopic(topic: string, options?: { partitions?: number; config?: Readonly<Record<string, string>> }): Promise<void>;
  /** Takes from whoever comes with this name the right to write to a topic; for brokers with a secure way in. */
  denyWrite(topic: string, username: string): Promise<void>;
  /** After stop or kill, with the same data. Resolves when it answers. */
  start(): Promise<void>;
  /** A controlled shutdown. */
  stop(): Promise<void>;
  /** SIGKILL. */
  kill(): Promise<void>;
  /** The broker hangs: connections stay open, nothing is answered. */
  pause(): void;
  resume(): void;
  /** Ends it for good, and its data. Repeat: safe. */
  close(): Promise<void>;
}

const PARTITIONS = 3;
const CLUSTER_ID = 'cnVucGxhbmUta2Fma2EtMQ';
/** A busy machine takes its time to start a JVM. */
const START_TIMEOUT_MS = 90_000;
const STOP_TIMEOUT_MS = 30_000;
const POLL_MS = 50;
const JAVA_OPTIONS = ['-Xms128m', '-Xmx512m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Xshare:auto'];
const LOG_OPTIONS = [
  '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
  '-Dorg.slf4j.simpleLogger.showDateTime=true',
  '-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS',
];

/** Starts a broker with an empty log. Without topics: none is made by itself. Errors: EmbeddedKafkaError. */
export async function startEmbeddedKafka({ secure = false }: { secure?: boolean } = {}): Promise<EmbeddedKafka> {
  const jars = await ensureKafkaJars();
  const dir = await mkdtemp(path.join(os.tmpdir(), 'runplane-kafka-'));
  try {
    const listener = secure ? makeSecureListener(dir, await freePort()) : undefined;
    const broker = new Broker(jars, dir, await freePort(), await freePort(), listener);
    await broker.format();
    await broker.start();
    return broker;
  } catch (error) {
    await rm(dir, { recursive: true, force: true });
    throw error;
  }
}

class Broker implements EmbeddedKafka {
  readonly dir: string;
  readonly brokers: readonly string[];
  readonly #properties: string;
  readonly #classPath: string;
  readonly #settings: Readonly<Record<string, string | number | boolean>>;
  readonly #listener: SecureListener | undefined;
  #child: ChildProcess | undefined;

  constructor(jars: string, dir: string, port: number, controllerPort: number, listener: SecureListener | undefined) {
    this.dir = dir;
    this.brokers = [`127.0.0.1:${port}`];
    this.#listener = listener;
    const listeners = [
      `PLAINTEXT://127.0.0.1:${port}`,
      ...(listener?.access.brokers ?? []).map((address) => `${SECURE_LISTENER}://${address}`),
    ];
    this.#classPath = path.join(jars, '*');
    this.#properties = path.join(dir, 'server.properties');
    this.#settings = {
      'process.roles': 'broker,controller',
      'node.id': 1,
      'controller.quorum.voters': `1@127.0.0.1:${controllerPort}`,
      'controller.listener.names': 'CONTROLLER',
      listeners: [...listeners, `CONTROLLER://127.0.0.1:${controllerPort}`].join(),
      'advertised.listeners': listeners.join(),
      'listener.security.protocol.map': `CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,${SECURE_LISTENER}:SASL_SSL`,
      'inter.broker.listener.name': 'PLAINTEXT',
      'log.dirs': path.join(dir, 'data'),
      'auto.create.topics.enable': false,
      'num.partitions': PARTITIONS,
      'offsets.topic.num.partitions': 1,
      'offsets.topic.replication.factor': 1,
      'transaction.state.log.replication.factor': 1,
      'transaction.state.log.min.isr': 1,
      'group.initial.rebalance.delay.ms': 0,
      'log.segment.bytes': 64 * 1024 * 1024,
      ...listener?.settings,
    };
  }

  get secure(): SecureAccess | undefined {
    return this.#listener?.access;
  }

  async format(): Promise<void> {
    const lines = Object.entries(this.#settings).map(([name, value]) => `${name}=${value}\n`);
    await writeFile(this.#properties, lines.join(''));
    const args = this.#java(
      'kafka.tools.StorageTool',
      'format',
      '--cluster-id',
      CLUSTER_ID,
      '--config',
      this.#properties,
      ...(this.#listener?.formatArgs ?? []),
    );
    const formatted = spawnSync('java', args, { encoding: 'utf8' });
    if (formatted.status !== 0)
      throw new EmbeddedKafkaError(`Kafka's storage could not be formatted:\n${formatted.stdout}${formatted.stderr}`);
  }

  async start(): Promise<void> {
    const logFile = path.join(this.dir, 'broker.log');
    const output = openSync(logFile, 'a');
    // A group of its own: Ctrl-C in the terminal is ours to answer.
    const child = spawn('java', this.#java('kafka.Kafka', this.#properties), { detached: true, stdio: ['ignore', output, output] });
    closeSync(output);
    this.#child = child;
    await once(child, 'spawn');
    const release = watch(child, this.dir);
    child.once('exit', release);
    child.unref();
    const deadline = Date.now() + START_TIMEOUT_MS;
    while (!(await this.#answers())) {
      if (hasEnded(child) || Date.now() > deadline) {
        const tail = readFileSync(logFile, 'utf8').trimEnd().split('\n').slice(-20).join('\n');
        await this.kill();
        throw new EmbeddedKafkaError(`Kafka did not start on ${this.brokers.join()}; its log says\n${tail}`);
      }
      await delay(POLL_MS);
    }
  }

  stop(): Promise<void> {
    return this.#end('SIGTERM');
  }

  kill(): Promise<void> {
    return this.#end('SIGKILL');
  }

  pause(): void {
    this.#child?.kill('SIGSTOP');
  }

  resume(): void {
    this.#child?.kill('SIGCONT');
  }

  async createTopic(
    topic: string,
    { partitions = PARTITIONS, config = {} }: Parameters<EmbeddedKafka['createTopic']>[1] = {},
  ): Promise<void> {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }));
    await this.#administer((admin) =>
      admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: partitions, configEntries }] }),
    );
  }

  async denyWrite(topic: string, username: string): Promise<void> {
    const acl = {
      resourceType: AclResourceTypes.TOPIC,
      resourceName: topic,
      resourcePatternType: ResourcePatternTypes.LITERAL,
      principal: `User:${username}`,
      host: '*',
      operation: AclOperationTypes.WRITE,
      permissionType: AclPermissionTypes.DENY,
    };
    await this.#administer((admin) => admin.createAcls({ acl: [acl] }));
  }

  async close(): Promise<void> {
    await this.kill();
    await rm(this.dir, { recursive: true, force: true });
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (child === undefined || hasEnded(child)) return;
    child.ref();
    const ended = once(child, 'exit');
    child.kill('SIGCONT'); // one that is paused hears SIGTERM only then
    child.kill(signal);
    const tooLong = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    await ended;
    clearTimeout(tooLong);
  }

  async #answers(): Promise<boolean> {
    if (!(await canConnect(this.brokers))) return false;
    const brokers = await this.#administer(async (admin) => (await admin.describeCluster()).brokers).catch(() => []);
    return brokers.length > 0;
  }

  async #administer<T>(work: (admin: Admin) => Promise<T>): Promise<T> {
    const admin = new Kafka({ brokers: [...this.brokers], clientId: 'embedded-kafka', logLevel: logLevel.NOTHING }).admin();
    try {
      await admin.connect();
      return await work(admin);
    } finally {
      await admin.disconnect().catch(() => undefined);
    }
  }

  #java(main: string, ...args: string[]): string[] {
    return [...JAVA_OPTIONS, ...LOG_OPTIONS, '-cp', this.#classPath, main, ...args];
  }
}

const hasEnded = (child: ChildProcess): boolean => child.exitCode !== null || child.signalCode !== null;

/** Ends the broker and its data when this process has gone, however it went. Returned: what to call when the broker has ended. */
function watch(child: ChildProcess, dir: string): () => void {
  const script = 'read line || { kill -9 "$1"; sleep 1; rm -rf "$2"; }';
  const watchdog = spawn('/bin/sh', ['-c', script, 'watchdog', String(child.pid), dir], {
    cwd: '/',
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  watchdog.on('error', () => undefined);
  watchdog.stdin.on('error', () => undefined); // it has ended already
  watchdog.unref();
  (watchdog.stdin as net.Socket).unref();
  return () => watchdog.stdin.end('ended\n');
}

function canConnect([address = '']: readonly string[]): Promise<boolean> {
  const [host, port] = address.split(':');
  return new Promise((resolve) => {
    const socket = net.connect(Number(port), host);
    for (const event of ['connect', 'error']) {
      socket.once(event, () => {
        socket.destroy();
        resolve(event === 'connect');
      });
    }
  });
}

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
