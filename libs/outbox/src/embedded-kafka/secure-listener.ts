import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { EmbeddedKafkaError } from './kafka-jars';

/** How to log in to a broker that asks for it: over TLS, with a name and a password, by `plain` or `scram-sha-256`. */
export interface SecureAccess {
  readonly brokers: readonly string[];
  /** PEM text of the certificate to trust. */
  readonly ca: string;
  readonly username: string;
  readonly password: string;
}

export interface SecureListener {
  readonly access: SecureAccess;
  readonly settings: Readonly<Record<string, string>>;
  /** Further arguments of the tool that formats the storage: SCRAM users are part of the cluster's own data. */
  readonly formatArgs: readonly string[];
}

export const SECURE_LISTENER = 'SECURE';
const USERNAME = 'app';
const PASSWORD = 'open-sesame-91';
const STORE_PASSWORD = 'changeit';

/** A listener with TLS and SASL, and an authorizer: whoever comes without a name may do everything, `app` what no rule denies. */
export function makeSecureListener(dir: string, port: number): SecureListener {
  const keyStore = path.join(dir, 'broker.p12');
  const certificate = path.join(dir, 'broker.pem');
  const store = ['-keystore', keyStore, '-storetype', 'PKCS12', '-storepass', STORE_PASSWORD, '-alias', 'broker'];
  keytool('-genkeypair', ...store, '-keyalg', 'EC', '-dname', 'CN=127.0.0.1', '-ext', 'san=ip:127.0.0.1', '-validity', '2');
  keytool('-exportcert', '-rfc', '-file', certificate, ...store);

  const jaas = (mechanism: string) => `listener.name.${SECURE_LISTENER.toLowerCase()}.${mechanism}.sasl.jaas.config`;
  return {
    access: { brokers: [`127.0.0.1:${port}`], ca: readFileSync(certificate, 'utf8'), username: USERNAME, password: PASSWORD },
    settings: {
      'ssl.keystore.location': keyStore,
      'ssl.keystore.type': 'PKCS12',
      'ssl.keystore.password': STORE_PASSWORD,
      'sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-256',
      [jaas('plain')]: `org.apache.kafka.common.security.plain.PlainLoginModule required user_${USERNAME}="${PASSWORD}";`,
      [jaas('scram-sha-256')]: 'org.apache.kafka.common.security.scram.ScramLoginModule required;',
      'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
      'super.users': 'User:ANONYMOUS',
      'allow.everyone.if.no.acl.found': 'true',
    },
    formatArgs: ['--add-scram', `SCRAM-SHA-256=[name=${USERNAME},password=${PASSWORD}]`],
  };
}

function keytool(...args: string[]): void {
  const run = spawnSync('keytool', args, { encoding: 'utf8' });
  if (run.status !== 0)
    throw new EmbeddedKafkaError(`keytool, which comes with Java, failed:\n${run.error?.message ?? run.stdout + run.stderr}`);
}
