import fc from 'fast-check';
import { REDACTED, redactText } from './redact-text';

const base64 = (text: string) => Buffer.from(text, 'utf8').toString('base64');
const JWT = `${base64('{"alg":"HS256","typ":"JWT"}')}.${base64('{"sub":"1234567890"}')}.c2lnbmF0dXJl`.replaceAll('=', '');
const PEM = `-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIICANARY+/==\n-----END RSA PRIVATE KEY-----`;

/** Each text has the secret CANARY; none of it may be left. */
const LEAKS: [string, string][] = [
  ['a connection string in a driver message', 'connect postgres://u:CANARY@h failed'],
  ['a password with raw @ and /', 'postgres://u:CAN@CANARY/x@db.internal:5432/app?sslmode=require'],
  ['a connection string without user', 'redis://:CANARY@cache:6379/0'],
  ['two connection strings', 'a postgres://u:CANARY@h/x, b amqp://v:CANARY@h'],
  ['a token as user of a URL', 'clone https://x0x0x0x0x0x0CANARYx0x0@github.com/a/b'],
  ['a header', 'Authorization: Bearer CANARY'],
  ['a header with another scheme', 'authorization: Basic CANARY'],
  ['a bearer token in prose', 'sent Bearer CANARY123 to the host'],
  ['basic credentials in prose', `sent Basic ${base64('user:CANARY')} to the host`],
  ['a cookie', 'Cookie: session=CANARY; theme=CANARY'],
  ['a cookie that is set', 'set-cookie: sid=CANARY; Path=/; HttpOnly'],
  ['a header of curl', `curl -H 'X-Api-Key: CANARY1' https://host`],
  ['an assignment', 'password=CANARY'],
  ['an environment variable', 'export DATABASE_URL=postgres://h/CANARY'],
  ['YAML', 'password: CANARY'],
  ['YAML with digits', 'token: CANARY1'],
  ['code', `const apiKey = "CANARY";`],
  ['code with an index', `headers["x-api-key"] = 'CANARY'`],
  ['Ruby', `password => 'CANARY'`],
  ['Go', 'token := `CANARY`'],
  ['a flag', 'login --password CANARY1 --token=CANARY'],
  ['a query', 'GET /feed?access_token=CANARY&limit=1'],
  ['a signed URL', 'https://s3/x?X-Amz-Expires=60&X-Amz-Signature=CANARY'],
  ['an ADO connection string', 'Server=db;Uid=app;Pwd=CANARY;Database=x'],
  ['an Azure connection string', 'AccountName=x;AccountKey=CANARY==;EndpointSuffix=core'],
  ['a request body', 'body {"user":"u","password":"CANARY"}'],
  ['a body with an escaped quote', '{"password":"a\\"CANARY","x":1}'],
  ['a body in a string', '"{\\"apiKey\\": \\"CANARY\\"}"'],
  ['a body in a string in a string', JSON.stringify(JSON.stringify(JSON.stringify({ client_secret: 'CANARY' })))],
  ['a body that was cut', '{"refresh_token":"CANARY'],
  ['a body in base64', `body ${base64('{"password":"CANARY"}')}`],
  ['a broken key of PostgreSQL', 'Key (tenant_id, api_token)=(acme, CANARY) already exists.'],
  ['a private key', `key:\n${PEM}\nend`],
  ['a private key in JSON', JSON.stringify({ pem: PEM })],
  ['a private key that was cut', PEM.slice(0, -20)],
];

const TOKENS = [
  'sk-abcdefghij1234567890',
  'sk-ant-api03-AbCdEf_123-456789',
  'sk_live_abcdefghij1234',
  'ghp_abcdefghijklmnopqrstuvwxyz0123456789',
  'github_pat_11ABCDEFG0abcdefghijkl_mnop',
  'glpat-abcdefghij1234567890',
  'AKIAIOSFODNN7EXAMPLE',
  'xoxb-1234567890-abcdefghij',
  'AIzaSyA1234567890abcdefghijklmnopqrstuv',
  'npm_abcdefghijklmnopqrstuvwxyz0123456789',
  'hf_abcdefghijklmnopqrstuvwxyz12',
  JWT,
];

const ORDINARY = [
  'plain words, numbers 1 2 3 and punctuation: yes; no.',
  'emoji 😀 👩‍👩‍👧‍👦 🇩🇪, 会话 𠀀, e\u0301 é, \u202E',
  'tokens: 5, inputTokens=7, "maxTokens": 100, tokenCount = 3, keyboard: qwerty, monkey=1',
  'password authentication failed for user "app"',
  'the token has expired; use --token to authenticate',
  'Bearer authentication and Basic training are words',
  'PWD=/workspace OLDPWD=/',
  'password=${PASSWORD} token=$TOKEN secret={{ secret }} apiKey=<your key> password=*** token=null',
  'function login(password: string, token: Token): Promise<void> {}',
  'const token = request.headers.token; if (token === other && secret !== x) {}',
  'const secret = await loadSecret(name); token=getToken()',
  'items.map((token) => token.text)',
  'enum class Token::Kind { secret, other }',
  '<input type="password" name="password" />',
  'http://localhost:3000/a@b https://[::1]:8080/@scope https://medium.com/@user ssh://git@github.com/a/b',
  'import x from "@scope/pkg"; mail me@example.com',
  'postgres://app@db/app?sslmode=require',
  `if (text.includes('-----BEGIN PRIVATE KEY-----')) return;`,
  '-----BEGIN CERTIFICATE-----\nMIIBxyz\n-----END CERTIFICATE-----',
  'run_01970000-0000-7000-8000-000000000000 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
  'class="sk-fading-circle sk-chasing-dots-large"',
  '/usr/local/lib/node_modules/npm/bin/npm-cli.js',
  'Key (tenant_id, run_id)=(acme, run_1) already exists.',
  'DATABASE_URL is not set',
  'publicKey: abc123, idempotencyKey=k-1, secretName=db, tokenizer = bpe2',
  `data:image/png;base64,${Buffer.from(Array.from({ length: 3000 }, (_, index) => (index * 7919) % 251)).toString('base64')}`,
  base64('only text, nothing in it that anybody has to hide'),
  '{"level":"info","msg":"done","ms":12,"nested":"{\\"a\\":1}"}',
];

describe('a secret does not come out of the error path', () => {
  it.each(LEAKS)('%s', (_name, text) => {
    const redacted = redactText(text);

    expect(redacted).not.toContain('CANARY');
    expect(redacted).not.toContain(base64('CANARY').slice(0, 8));
    expect(redacted).toContain(REDACTED);
  });

  it.each(TOKENS)('a token of known shape, wherever it stands: %s', (token) => {
    for (const text of [token, `got ${token}, then`, `/${token}/`, `"${token}"`, `x=${token}&y`, `\n${token}\n`, `(${token})`]) {
      expect(redactText(text)).toBe(text.replace(token, REDACTED));
    }
  });

  it('leaves what stands around the secret', () => {
    expect(redactText('connect postgres://app:pw@db:5432/app failed')).toBe(`connect postgres://app:${REDACTED}@db:5432/app failed`);
    expect(redactText('{"password":"x","user":"u"}')).toBe(`{"password":"${REDACTED}","user":"u"}`);
    expect(redactText('/feed?token=x&limit=1')).toBe(`/feed?token=${REDACTED}&limit=1`);
    expect(redactText('{\\"apiKey\\":\\"x\\",\\"n\\":1}')).toBe(`{\\"apiKey\\":\\"${REDACTED}\\",\\"n\\":1}`);
  });

  it('keeps JSON in strings parseable', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom('password', 'token', 'a', 'apiKey'), fc.string({ unit: 'binary' })), (body) => {
        expect(() => void JSON.parse(redactText(JSON.stringify(body)))).not.toThrow();
      }),
    );
  });
});

it.each(ORDINARY)('ordinary text stays as it is: %j', (text) => {
  expect(redactText(text)).toBe(text);
});

describe('redacting twice changes nothing', () => {
  it.each([...LEAKS.map(([, text]) => text), ...TOKENS])('%j', (text) => {
    expect(redactText(redactText(text))).toBe(redactText(text));
  });

  it('for any mixture of the parts that the rules look at', () => {
    const parts = [
      'password',
      'token',
      'apiKey',
      'Cookie',
      'sig',
      ': ',
      ' = ',
      '=',
      ':',
      ':=',
      '=>',
      ')=(',
      'Key (',
      '--',
      ...'"\'\\`[](){}<>,;&?@/$\n 😀',
      '\\"',
    ];
    const values = [
      '[redacted]',
      'abc',
      'x1',
      '80',
      'true',
      'Bearer ',
      'Basic ',
      'dXNlcjpwYXNz',
      '://',
      'hooks.slack.com/services/',
      base64('{"token":"x"}'),
    ];
    const text = fc
      .array(fc.constantFrom(...parts, ...values, ...TOKENS, ...PEM.split('\n')), { maxLength: 14 })
      .map((list) => list.join(''));
    fc.assert(
      fc.property(text, (given) => {
        const redacted = redactText(given);
        expect(redactText(redacted)).toBe(redacted);
      }),
      { numRuns: 3000 },
    );
  });
});

describe('a megabyte made to slow it down takes no more than a moment', () => {
  const fragments = [
    ...[
      'a',
      '-',
      '\\',
      '@',
      '=',
      '"',
      '://',
      '://x:',
      '://a:@',
      'http://x ',
      'http://u:p@h ',
      'Key (',
      'Key (a)=(',
      'bearer ',
      'Basic ',
      'sk-',
      '_eyJ',
    ],
    ...[
      'token=',
      'token="',
      'token=\'a"',
      'token=\\"',
      'token=\\\\"\\\'',
      'token\\\\\\\\',
      'token    ',
      'token=a.b(',
      'token=a/[redacted',
      'api ',
      '--token ',
      'cookie: a',
      '[redacted]',
    ],
    ...[
      '-----BEGIN PRIVATE KEY-----\n',
      'eyJhbGciOi.',
      'SG.aaaaaaaaaaaaaaaaaaaaaaaaaa',
      'aGVsbG8gd29ybGQgaGVsbG8gd29ybGQ ',
      'QUJD',
      '/-+=',
      'AKIA',
    ],
  ];
  it.each(fragments)('repeated %j', (fragment) => {
    const text = fragment.repeat(Math.ceil(1_000_000 / fragment.length));

    const started = performance.now();
    redactText(text);

    // Linear work takes 0.01 to 0.5 s; anything quadratic takes minutes.
    expect(performance.now() - started).toBeLessThan(4000);
  });
});
