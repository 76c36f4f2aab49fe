import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { Environment, readConfig } from './config';

describe('the configuration', () => {
  test('needs no variable at all', async () => {
    await expect(readConfig({})).resolves.toMatchObject({
      databaseUrl: undefined,
      port: 3000,
      host: '127.0.0.1',
      dispatch: true,
      migrate: true,
    });
  });

  test('takes an empty variable for an absent one', async () => {
    await expect(readConfig({ PORT: '', DATABASE_URL: '' })).resolves.toMatchObject({ databaseUrl: undefined, port: 3000 });
  });

  test.each([
    { PORT: '70000' },
    { PORT: 'http' },
    { RUNPLANE_POOL_MAX: '1' },
    { RUNPLANE_MIGRATE: 'maybe' },
    { RUNPLANE_PUBLIC_URL: 'nowhere' },
    { RUNPLANE_LOG_LEVEL: 'loud' },
  ])('refuses %j and names the variable', async (env) => {
    await expect(readConfig(env)).rejects.toThrow(Object.keys(env)[0]);
  });

  test('reads backend profiles, and does not show a file that is none', async () => {
    const dir = await mkdtemp(path.join(os.tmpdir(), 'runplane-config-'));
    const file = path.join(dir, 'backends.json');

    await writeFile(file, JSON.stringify({ shell: { command: ['sh', '-c', 'true'] } }));
    const { backends } = await readConfig({ RUNPLANE_BACKENDS_FILE: file });
    await writeFile(file, '{ "canary": ');
    const refusal = readConfig({ RUNPLANE_BACKENDS_FILE: file });

    expect(backends).toMatchObject({ shell: { kind: 'process', command: ['sh', '-c', 'true'], graceMs: 10_000 } });
    await expect(refusal).rejects.toThrow('is not valid JSON');
    await expect(refusal).rejects.not.toThrow('canary');
    await expect(readConfig({ RUNPLANE_BACKENDS_FILE: path.join(dir, 'none') })).rejects.toThrow('ENOENT');
    await rm(dir, { recursive: true });
  });

  test('of Kafka is complete or refused, and shows neither password nor key', async () => {
    const dir = await mkdtemp(path.join(os.tmpdir(), 'runplane-config-'));
    const key = path.join(dir, 'key.pem');
    await writeFile(key, 'canary');
    const tls = { RUNPLANE_KAFKA_TLS: 'on', RUNPLANE_KAFKA_TLS_CERT_FILE: key, RUNPLANE_KAFKA_TLS_KEY_FILE: key };
    const sasl = { RUNPLANE_KAFKA_SASL_MECHANISM: 'plain', RUNPLANE_KAFKA_SASL_USERNAME: 'app', RUNPLANE_KAFKA_SASL_PASSWORD: 'canary' };
    const env = { RUNPLANE_KAFKA_BROKERS: 'a:9092, [::1]:9093', ...tls, ...sasl };

    await expect(readConfig(env)).resolves.toMatchObject({
      kafka: {
        topic: 'runplane.events',
        options: {
          brokers: ['a:9092', '[::1]:9093'],
          tls: { cert: 'canary', key: 'canary' },
          sasl: { mechanism: 'plain', username: 'app', password: 'canary' },
        },
      },
    });
    for (const [wrong, told] of [
      [{ RUNPLANE_KAFKA_BROKERS: 'kafka://a:9092' }, 'RUNPLANE_KAFKA_BROKERS'],
      [{ RUNPLANE_KAFKA_SOURCE: 'https://a/' }, 'RUNPLANE_KAFKA_SOURCE'],
      [{ RUNPLANE_KAFKA_TOPIC: 'no such name' }, 'RUNPLANE_KAFKA_TOPIC'],
      [{ RUNPLANE_KAFKA_SASL_PASSWORD: '' }, 'RUNPLANE_KAFKA_SASL_PASSWORD'],
      [{ RUNPLANE_KAFKA_TLS_KEY_FILE: '' }, 'RUNPLANE_KAFKA_TLS_KEY_FILE'],
      [{ RUNPLANE_KAFKA_TLS_CA_FILE: path.join(dir, 'none') }, 'ENOENT'],
    ] as const) {
      const refusal = readConfig({ ...env, ...wrong });
      await expect(refusal).rejects.toThrow(told);
      await expect(refusal).rejects.not.toThrow('canary');
    }
    await rm(dir, { recursive: true });
  });

  test('of a profile that launches Jobs needs to know the way from pods to the API, and from the API to the cluster', async () => {
    const dir = await mkdtemp(path.join(os.tmpdir(), 'runplane-config-'));
    const file = path.join(dir, 'backends.json');
    const kubernetes = { namespace: 'agents', image: 'agent:1' };
    await writeFile(file, JSON.stringify({ agent: { command: ['agent'], launcher: 'kubernetes', kubernetes } }));
    const env = { RUNPLANE_BACKENDS_FILE: file, RUNPLANE_PUBLIC_URL: 'http://api.example', RUNPLANE_KUBECONFIG: 'kubeconfig' };

    await expect(readConfig(env)).resolves.toMatchObject({ kubeconfig: 'kubeconfig', backends: { agent: { kubernetes } } });
    await expect(readConfig({ ...env, RUNPLANE_PUBLIC_URL: '' })).rejects.toThrow('RUNPLANE_PUBLIC_URL');
    await expect(readConfig({ ...env, RUNPLANE_KUBECONFIG: '' })).rejects.toThrow('RUNPLANE_KUBECONFIG');
    await expect(readConfig({ ...env, RUNPLANE_KUBECONFIG: '', KUBERNETES_SERVICE_HOST: '10.0.0.1' })).resolves.toBeDefined();
    await expect(readConfig({ ...env, RUNPLANE_KUBECONFIG: '', RUNPLANE_DISPATCH: 'off' })).resolves.toBeDefined();
    await rm(dir, { recursive: true });
  });

  test('is described in docs/configuration.md, each variable', async () => {
    const docs = await readFile(path.join(__dirname, '../../../docs/configuration.md'), 'utf8');
    const described = [...docs.matchAll(/^\| `([A-Z_]+)` \|/gm)].map(([, name]) => name);

    expect(described.sort()).toEqual(Object.keys(Environment.shape).sort());
  });
});
