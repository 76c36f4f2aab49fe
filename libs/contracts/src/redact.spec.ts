import fc from 'fast-check';
import { normalizeJson, type JsonValue } from './json';
import { freeText, isSecretName, REDACTED, redactError, redactJson } from './redact';

describe('isSecretName', () => {
  it.each([
    ...[
      'password',
      'Password',
      'PASSWORD',
      'passwd',
      'user_password',
      'newPassword',
      'passwordHash',
      'password2',
      'dbPwd',
      'Pwd',
      'smtp_pass',
    ],
    ...['secret', 'secrets', 'client_secret', 'clientSecret', 'CLIENT-SECRET', 'webhook.secret', 'secret_value'],
    ...['token', 'access_token', 'refreshToken', 'X-Auth-Token', 'github_token', 'tokenHash', 'jwt'],
    ...[
      'api_key',
      'apiKey',
      'API_KEY',
      'APIKey',
      'apikey',
      'x-api-key',
      'api keys',
      'private_key',
      'privateKeyPem',
      'secretAccessKey',
      'AccountKey',
    ],
    ...['authorization', 'Proxy-Authorization', 'cookie', 'Set-Cookie', 'cookies', 'credentials', 'credential', 'passphrase'],
    ...[
      'connection_string',
      'ConnectionString',
      'DATABASE_URL',
      'DATABASE_DIRECT_URL',
      'databaseUrl',
      'REDIS_URL',
      'mongo_uri',
      'SENTRY_DSN',
    ],
    '--password',
  ])('%s names a secret', (name) => {
    expect(isSecretName(name)).toBe(true);
  });

  it.each([
    ...[
      'tokens',
      'inputTokens',
      'maxTokens',
      'tokenCount',
      'token_type',
      'tokenizer',
      'keyboard',
      'monkey',
      'key',
      'keys',
      'publicKey',
      'idempotencyKey',
    ],
    ...[
      'partitionKey',
      'accessKeyId',
      'secretName',
      'secretKeyRef',
      'passwordLength',
      'cookieName',
      'authorizationUrl',
      'author',
      'PWD',
      'OLDPWD',
      'pwd',
    ],
    ...['baseUrl', 'url', 'compass', 'bypass', 'pass', 'passed', 'session_id', 'commandId', '', '会话', '__proto__'],
  ])('%s does not', (name) => {
    expect(isSecretName(name)).toBe(false);
  });
});

describe('redactJson', () => {
  it('masks by name in any case and depth, and by value anywhere', () => {
    const given = {
      tool: 'deploy',
      env: { API_KEY: 'a', PATH: '/bin' },
      list: [{ 'x-api-key': 'b' }, 'postgres://u:c@h/d', 'plain'],
      credentials: { user: 'u', pin: 1234, nested: ['x'], ok: true, none: null },
      usage: { inputTokens: 5, maxTokens: 10 },
      body: '{"password":"e"}',
    };

    expect(redactJson(given)).toEqual({
      tool: 'deploy',
      env: { API_KEY: REDACTED, PATH: '/bin' },
      list: [{ 'x-api-key': REDACTED }, `postgres://u:${REDACTED}@h/d`, 'plain'],
      credentials: { user: REDACTED, pin: REDACTED, nested: [REDACTED], ok: true, none: null },
      usage: { inputTokens: 5, maxTokens: 10 },
      body: `{"password":"${REDACTED}"}`,
    });
  });

  it('masks environments, headers and arguments that are given as lists', () => {
    expect(
      redactJson({
        env: [{ name: 'DB_PASSWORD', value: 'a' }],
        headers: [{ key: 'Cookie', value: 'b' }],
        argv: ['x', '--token', 'c', 'd'],
      }),
    ).toEqual({
      env: [{ name: 'DB_PASSWORD', value: REDACTED }],
      headers: [{ key: 'Cookie', value: REDACTED }],
      argv: ['x', '--token', REDACTED, 'd'],
    });
  });

  it('masks secrets in keys and keeps the keys apart', () => {
    const keys = Object.keys(redactJson({ 'postgres://u:a@h': 1, 'postgres://u:b@h': 2 }));

    expect(keys).toHaveLength(2);
    expect(keys.join()).not.toMatch(/:[ab]@/);
  });

  it('still masks a password below __proto__ and keeps the key as data', () => {
    const text = '{"__proto__":{"password":"a","role":"admin"},"constructor":{"token":"b"},"hasOwnProperty":1}';

    const redacted = redactJson(normalizeJson(JSON.parse(text) as unknown).value);

    expect(JSON.stringify(redacted)).toBe(text.replace('"a"', `"${REDACTED}"`).replace('"b"', `"${REDACTED}"`));
    expect((redacted as { role?: unknown }).role).toBeUndefined();
    expect(({} as { role?: unknown }).role).toBeUndefined();
  });

  it('leaves the input alone, keeps its shape and changes nothing the second time', () => {
    const key = fc.constantFrom('password', 'name', 'value', 'a', 'token', '__proto__');
    const { tree } = fc.letrec<{ tree: JsonValue }>((tie) => ({
      tree: fc.oneof(
        { maxDepth: 4 },
        fc.constantFrom<JsonValue>('', 'x', 'password=x', '--token', 1, true, null),
        fc.array(tie('tree'), { maxLength: 4 }),
        fc.array(fc.tuple(key, tie('tree')), { maxLength: 4 }).map((entries) => Object.fromEntries(entries)),
      ),
    }));
    fc.assert(
      fc.property(tree, (given) => {
        const before = JSON.stringify(given);
        const redacted = redactJson(given);
        expect(JSON.stringify(given)).toBe(before);
        expect(shapeOf(redacted)).toEqual(shapeOf(given));
        expect(redactJson(redacted)).toEqual(redacted);
      }),
    );
  });
});

describe('a log line with a bigint does not throw', () => {
  it('takes any value: a row with bigint, a date, an error, a buffer, a cycle', () => {
    const row: Record<string, unknown> = {
      position: 9007199254740993n,
      at: new Date(0),
      broken: new Date(NaN),
      error: new Error('token=a'),
      bytes: Buffer.from('abc'),
    };
    row['self'] = row;
    row['list'] = [undefined, () => 1, Symbol('s'), 1n];
    row['left'] = undefined;

    expect(redactJson(row as unknown)).toEqual({
      position: '9007199254740993',
      at: '1970-01-01T00:00:00.000Z',
      broken: null,
      error: `token=${REDACTED}`,
      bytes: '[3 bytes]',
      self: '[circular]',
      list: [null, null, null, '1'],
    });
  });

  it('survives depth and getters that throw', () => {
    const deep: unknown = JSON.parse('['.repeat(5000) + ']'.repeat(5000));
    const thrower = Object.defineProperty({}, 'x', {
      enumerable: true,
      get() {
        throw new Error('no');
      },
    });

    expect(JSON.stringify(redactJson(deep))).toContain('[nested too deep]');
    expect(redactJson(thrower as unknown)).toEqual({ x: '[unreadable]' });
    expect(redactJson(undefined as unknown)).toBeNull();
  });
});

describe('redactError', () => {
  it('has the messages of the causes, without their secrets', () => {
    const error = new Error('dispatch failed', {
      cause: new AggregateError([new Error('connect postgres://u:CANARY@h'), 'password=CANARY'], 'all failed'),
    });

    expect(redactError(error)).toBe(`dispatch failed: all failed: connect postgres://u:${REDACTED}@h: password=${REDACTED}`);
  });

  it.each<[string, unknown, string]>([
    ['a text', 'token=CANARY', `token=${REDACTED}`],
    ['an object', { code: 1, apiKey: 'CANARY' }, `{"code":1,"apiKey":"${REDACTED}"}`],
    ['an object with a message', { message: 'm' }, 'm'],
    ['an error without message', new TypeError(), 'TypeError'],
    ['an error with a strange name', Object.assign(new Error(), { name: 5 }), 'unknown error'],
    ['undefined', undefined, 'unknown error'],
    ['null', null, 'unknown error'],
    ['a number', 5, '5'],
    ['a bigint', 5n, '"5"'],
  ])('takes %s', (_name, thrown, text) => {
    expect(redactError(thrown)).toBe(text);
  });

  it('ends with a cycle of causes and is cut', () => {
    const error = new Error('x'.repeat(5000));
    error.cause = error;

    expect(redactError(error)).toHaveLength(2000);
    expect(redactError(error, 10)).toBe('xxxxxxxxx…');
  });
});

describe('freeText', () => {
  it('makes a reason storable, redacted and short, in this order', () => {
    expect(freeText('a\0b password=CANARY')).toBe(`a\uFFFDb password=${REDACTED}`);
    expect(freeText(`${'😀'.repeat(600)}`)).toBe(`${'😀'.repeat(499)}…`);
    expect(freeText(`${'x '.repeat(245)}password=CANARYCANARY`)).not.toContain('CAN');
  });

  it('changes nothing the second time', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.nat(30), (text, max) => freeText(freeText(text, max), max) === freeText(text, max)),
    );
  });
});

/** The value with every string and number replaced, so that only containers, keys, booleans and nulls count. */
function shapeOf(value: JsonValue): unknown {
  if (Array.isArray(value)) return value.map(shapeOf);
  if (typeof value === 'object' && value !== null) return Object.entries(value).map(([key, member]) => [key, shapeOf(member)]);
  return typeof value === 'string' || typeof value === 'number' ? 'leaf' : value;
}
