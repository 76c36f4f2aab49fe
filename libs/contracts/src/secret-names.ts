// Names are compared without case and separators: api_key, apiKey, API-KEY and x-api-key all end in `apikey`. What a name ends in
// decides, so that tokens, maxTokens, tokenCount, secretName, publicKey and keyboard stay readable.
const STEMS = [
  '(?:password|passwd|passphrase|passcode|secret|credential|cookie|connectionstring|connstr)s?',
  '(?:api|private|secret|access|signing|encryption|master|account|shared|auth|ssh|license)keys?',
  '(?:db|user|smtp|mail|pg|mysql|redis|ftp|admin|root)pass',
  'authorization|basicauth|token|jwt|dsn',
  '(?<!^|^old)pwd', // PWD and OLDPWD are working directories
];
const SUFFIXES = 'value|hash|text|plain|plaintext|confirm|confirmation|base64|b64|pem|json|header|\\d+';
const SECRET_NAME = new RegExp(`(?:${STEMS.join('|')})(?:${SUFFIXES})?$`);
const DATABASE_URL = /^(?:[a-z0-9]*(?:database|postgres|mysql|mariadb|mongo|redis|amqp|rabbitmq|clickhouse|jdbc)|db|pg)[a-z0-9]*ur[il]$/;
/** The end of a longer name decides as well, and the work stays bounded. */
const NAME_CHARS = 64;

/** True for names whose values are credentials: password, client_secret, x-api-key, Set-Cookie, DATABASE_URL … */
export function isSecretName(name: string): boolean {
  if (name === 'Pwd') return true; // of ADO connection strings
  const compact = name
    .slice(-NAME_CHARS)
    .toLowerCase()
    .replace(/[^a-z0-9]/g, '');
  return SECRET_NAME.test(compact) || DATABASE_URL.test(compact);
}
