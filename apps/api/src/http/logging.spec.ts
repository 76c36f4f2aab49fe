import Fastify from 'fastify';
import { describeError, loggerOptions } from './logging';

function logOf(work: (log: ReturnType<typeof Fastify>['log']) => void): string {
  const lines: string[] = [];
  const app = Fastify({ logger: loggerOptions({ level: 'trace', stream: { write: (line) => void lines.push(line) } }) as never });
  work(app.log);
  return lines.join('');
}

describe('the log', () => {
  const token = 'sk-abcdefghijklmnopqrstuvwxyz0123456789';

  test('masks secrets in messages, arguments, fields and errors, also when an error is all that is logged', () => {
    const text = logOf((log) => {
      log.info(`token ${token}`);
      log.info('sent %s', token);
      log.info({ headers: { authorization: `Bearer ${token}` }, apiKey: 'plain-secret' }, 'fields');
      log.error(new Error(`failed with ${token}`));
      log.error({ err: new Error('outer', { cause: new Error(`inner ${token}`) }) });
    });

    expect(text.split('\n').filter(Boolean)).toHaveLength(5);
    expect(text).not.toContain(token);
    expect(text).not.toContain('plain-secret');
  });

  test('knows an error of the database by SQLSTATE and constraint, never by its message', () => {
    const error = Object.assign(new Error('duplicate key value: Key (name)=(canary) already exists'), {
      severity: 'ERROR',
      code: '23505',
      constraint: 'runs_pkey',
      detail: 'Key (name)=(canary) already exists',
    });
    const prisma = Object.assign(new Error('Raw query failed: canary'), { name: 'PrismaClientKnownRequestError', code: 'P2010' });

    const text = logOf((log) => {
      log.error({ err: new Error('a statement failed', { cause: error }) }, 'request failed');
      log.error({ err: prisma }, 'request failed');
    });

    expect(text).toContain('23505');
    expect(text).toContain('runs_pkey');
    expect(text).toContain('P2010');
    expect(text).not.toContain('canary');
  });

  test('writes a bigint as text', () => {
    expect(logOf((log) => log.info({ position: 9007199254740993n }, 'row'))).toContain('"9007199254740993"');
  });

  test('keeps where an error comes from, without the lines that repeat its message', () => {
    const described = describeError(new Error('line one canary?\nline two'));

    expect(described.frames?.length).toBeGreaterThan(0);
    expect(described.frames?.every((frame) => frame.startsWith('at '))).toBe(true);
  });
});
