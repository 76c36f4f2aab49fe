import { DatabaseUnavailable, LockTimeout, OutcomeUnknown, TransactionConflict } from '@runplane/contracts';
import { Coalescer, type Verdict } from './coalescer';
import { ParameterError } from './sql';

// Who goes when, and who is told what. What the statements do is tested with PostgreSQL, in libs/runs.

interface Call {
  readonly name: string;
  readonly lane: string;
  readonly repeatable: boolean;
}
/** `a1` is a call of lane a, `a1*` one that may be repeated. */
const call = (text: string): Call => ({ name: text.slice(0, 2), lane: text.charAt(0), repeatable: text.endsWith('*') });
const tick = () => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));

/** A coalescer of calls large enough that two are worth two batches, whose statements end when the test says so; `log` tells what was sent. */
function staged({ callsMax = 100, aloneMax = 1, sideBySideMax = 4, rows = 16 } = {}) {
  const log: string[] = [];
  const reviewed: (() => void)[] = [];
  const open: { readonly what: string; readonly names: string[]; end(error?: Error, busy?: string): void }[] = [];
  const send = <T>(kind: string, calls: readonly Call[], answer: (busy: string) => T): Promise<T> =>
    new Promise((resolve, reject) => {
      const names = calls.map(({ name }) => name);
      const what = `${kind} ${names.join(' ')}`;
      log.push(what);
      open.push({ what, names, end: (error, busy = '') => (error === undefined ? resolve(answer(busy)) : reject(error)) });
    });
  const coalescer = new Coalescer<Call, string>({
    describe: ({ lane }) => ({ lane, single: undefined, last: false, rows, bytes: 1 }),
    together: (calls) =>
      send('together', calls, (busy) =>
        calls.map(({ name, lane }): Verdict<string> => {
          if (` ${busy} `.includes(` ${lane} `)) return { kind: 'busy' };
          const review = busy.includes(`?${name}`);
          return { kind: 'answer', answer: review ? new Promise((resolve) => reviewed.push(() => resolve(name))) : name };
        }),
      ),
    alone: (each) => send('alone', [each], () => each.name),
    isRepeatable: ({ repeatable }) => repeatable,
    queue: { callsMax, bytesMax: 1_000 },
    batch: { callsMax: 100, rowsMax: 10_000, bytesMax: 100 },
    aloneMax,
    sideBySideMax,
  });
  const answers: Record<string, string> = {};
  const run = (texts: string): void => {
    for (const each of texts.split(' ').map(call)) {
      coalescer.run(each).then(
        (answer) => (answers[each.name] = answer),
        (error: { code?: string; message: string }) => (answers[each.name] = error.code ?? error.message),
      );
    }
  };
  /** Ends the oldest statement under way. */
  const end = async (error?: Error, busy?: string): Promise<void> => {
    open.shift()?.end(error, busy);
    await tick();
  };
  const untilIdle = async (): Promise<void> => {
    while (open.length > 0) await end();
  };
  /** Ends the looks that calls with `?` before their names need. */
  const review = async (): Promise<void> => {
    for (const done of reviewed.splice(0)) done();
    await tick();
  };
  return { coalescer, run, end, untilIdle, review, log, answers };
}

/** As PostgreSQL refuses a statement. */
const refusal = (code: string) => Object.assign(new Error(`refused with ${code}`), { code, severity: 'ERROR' });

test('a call that finds nothing under way runs at once by itself, whatever comes behind it goes together', async () => {
  const { run, untilIdle, log, answers } = staged();
  run('a1');
  expect(log).toEqual(['alone a1']);
  run('b1 c1');
  expect(log).toEqual(['alone a1']); // others of this turn of the event loop may join
  run('d1');
  await tick();
  expect(log).toEqual(['alone a1', 'together b1 c1', 'together d1']);
  await untilIdle();
  expect(answers).toEqual({ a1: 'a1', b1: 'b1', c1: 'c1', d1: 'd1' });
});

test('two batches are under way at most, and share what there is', async () => {
  const { run, end, log, coalescer } = staged();
  run('z1');
  run('a1 b1 c1 d1');
  await tick();
  run('e1 f1 g1 h1 i1 j1');
  await tick();
  expect(log.slice(1)).toEqual(['together a1 b1', 'together c1 d1']);
  await end(); // z1 alone has no share in the two
  expect(log).toHaveLength(3);
  await end();
  expect(log[3]).toBe('together e1 f1 g1 h1');
  expect(coalescer.stats).toMatchObject({ calls: 11, batches: 3, together: 8, alone: 1, waiting: 2, waitingBytes: 2 });
});

test('few rows are not worth a second batch: they wait for the one under way', async () => {
  const { run, end, untilIdle, log } = staged({ rows: 1 });
  run('z1 a1 b1');
  await tick();
  run('c1 d1');
  await tick();
  expect(log).toEqual(['alone z1', 'together a1 b1']);
  await end();
  await end();
  expect(log.slice(2)).toEqual(['together c1 d1']);
  await untilIdle();
});

test('whoever calls again as soon as it is answered goes with the others that do', async () => {
  const { run, end, untilIdle, log, coalescer } = staged({ rows: 1 });
  run('z1');
  const again = ['a1', 'b1', 'c1'].map((name) => coalescer.run(call(name)).then(() => coalescer.run(call(name.replace('1', '2')))));
  await tick();
  await end();
  await end();
  expect(log.slice(1)).toEqual(['together a1 b1 c1', 'together a2 b2 c2']);
  await untilIdle();
  await Promise.all(again);
});

test('calls of one lane do not overtake each other', async () => {
  const { run, end, log } = staged();
  run('a1 a2 b1');
  await tick();
  expect(log).toEqual(['alone a1', 'together b1']);
  await end();
  expect(log.at(-1)).toBe('together a2');
});

test('a busy lane is tried twice together, then alone, beside the batches', async () => {
  const { run, end, untilIdle, log, answers } = staged();
  run('z1');
  run('a1 a2 b1');
  await tick();
  await end(); // z1
  await end(undefined, 'a');
  expect(answers).toEqual({ z1: 'z1' });
  expect(log.slice(1)).toEqual(['together a1 a2', 'together b1', 'together a1 a2']);
  await end(); // b1
  await end(undefined, 'a');
  expect(log.at(-1)).toBe('alone a1');
  run('c1 d1');
  await tick();
  expect(log.slice(-2)).toEqual(['alone a1', 'together c1 d1']);
  await untilIdle();
  expect(log.at(-1)).toBe('together a2');
  expect(answers).toEqual({ z1: 'z1', a1: 'a1', a2: 'a2', b1: 'b1', c1: 'c1', d1: 'd1' });
});

test('calls that have waited for a lock as long as the one before them are told so with it; a later one tries again', async () => {
  const { run, end, untilIdle, log, answers } = staged();
  run('z1');
  run('a1 a2');
  await tick();
  await end(); // z1
  await end(undefined, 'a');
  await end(undefined, 'a');
  expect(log.at(-1)).toBe('alone a1');
  run('a3');
  await end(new LockTimeout());
  expect(answers).toEqual({ z1: 'z1', a1: 'lock_timeout', a2: 'lock_timeout' });
  await untilIdle();
  expect(answers).toMatchObject({ a3: 'a3' });
});

test('calls that have waited as long for other locks are tried once more, and told so when that fails', async () => {
  const { run, end, untilIdle, log, answers } = staged();
  run('z1');
  run('a1 b1 c1');
  await tick();
  await end(); // z1
  for (let tries = 0; tries < 4; tries += 1) await end(undefined, 'a b c');
  expect(log.at(-1)).toBe('alone a1');
  run('b2');
  await end(new LockTimeout());
  await end(undefined, 'b');
  await end(undefined, 'b');
  expect(answers).toEqual({ z1: 'z1', a1: 'lock_timeout', b1: 'lock_timeout', c1: 'c1' });
  await untilIdle();
  expect(answers).toMatchObject({ b2: 'b2' });
});

test('calls of a lane wait for one of theirs that needs another look, other lanes do not; closing waits too', async () => {
  const { run, end, review, untilIdle, log, answers, coalescer } = staged();
  run('z1');
  run('a1 b1');
  await tick();
  run('a2 b2');
  await end(); // z1
  await end(undefined, '?a1');
  await end();
  expect(log.slice(1)).toEqual(['together a1', 'together b1', 'together b2']);
  await untilIdle();
  let closed = false;
  const closing = coalescer.close().then(() => (closed = true));
  await tick();
  expect([closed, answers]).toEqual([false, { z1: 'z1', b1: 'b1', b2: 'b2' }]);

  await review();
  expect(log.at(-1)).toBe('alone a2');
  await untilIdle();
  await closing;
  expect(answers).toMatchObject({ a1: 'a1', a2: 'a2' });
});

test('a few calls have a statement each, side by side; those of one lane one after the other', async () => {
  const { run, end, untilIdle, log } = staged({ aloneMax: 4 });
  run('a1 a2 b1 c1 d1');
  expect(log).toEqual(['alone a1']);
  await tick();
  expect(log).toEqual(['alone a1', 'together b1 c1', 'together d1']); // a1 and the four behind it are more than a few
  await untilIdle();
  expect(log.slice(3)).toEqual(['together a2']); // while a batch is under way nobody goes alone

  run('e1');
  run('f1');
  expect(log.slice(4)).toEqual(['alone e1', 'alone f1']);
  await end();
  await end();
});

test('of a kind whose calls never go side by side each joins a batch; one that comes alone is a batch of one', async () => {
  const { run, untilIdle, end, log } = staged({ sideBySideMax: 0, rows: 1 });
  run('a1');
  await tick();
  expect(log).toEqual(['together a1']);
  run('b1');
  run('c1');
  await tick();
  expect(log).toHaveLength(1);
  await end();
  expect(log[1]).toBe('together b1 c1');
  await untilIdle();
});

describe('a batch that fails as a whole', () => {
  const together = async () => {
    const stage = staged();
    stage.run('z1');
    stage.run('a1* b1');
    await tick();
    stage.run('c1*');
    await stage.end(); // z1
    return stage; // under way: a1, b1
  };

  it('is repeated call by call when PostgreSQL refused it', async () => {
    for (const error of [refusal('23505'), new TransactionConflict('deadlock', { attempts: 1 }, { cause: refusal('40P01') })]) {
      const { end, untilIdle, log, answers } = await together();
      await end(error);
      expect(log.slice(-1)).toEqual(['alone a1']);
      await untilIdle();
      expect(answers).toEqual({ z1: 'z1', a1: 'a1', b1: 'b1', c1: 'c1' });
    }
  });

  it('that was not sent is repeated call by call too: the mistake is one caller’s', async () => {
    const { end, untilIdle, answers, log } = await together();
    await end(new ParameterError('a parameter is undefined'));
    expect(log.at(-1)).toBe('alone a1');
    await end(); // b1
    await end(new ParameterError('a parameter is undefined'));
    await untilIdle();
    expect(answers).toEqual({ z1: 'z1', a1: 'a parameter is undefined', b1: 'b1', c1: 'c1' });
  });

  it('has calls of a lane wait once for a lock, not one after the other', async () => {
    const { run, end, untilIdle, answers, log } = staged({ rows: 1 });
    run('z1');
    run('a1 a2');
    await tick();
    await end();
    await end(refusal('22P05'));
    await end(new LockTimeout());
    await untilIdle();
    expect([log.slice(1), answers]).toEqual([['together a1 a2', 'alone a1'], { z1: 'z1', a1: 'lock_timeout', a2: 'lock_timeout' }]);
  });

  it('gives each call the reason when it would fare no better alone', async () => {
    const { end, untilIdle, log, answers } = await together();
    await end(new DatabaseUnavailable(undefined, { cause: refusal('57P03') }));
    expect(answers).toMatchObject({ a1: 'database_unavailable' });
    await untilIdle();
    expect(log.filter((what) => what.startsWith('alone'))).toEqual(['alone z1']);
  });

  it('gives each call a mistake of ours, and repeats nothing that may be committed', async () => {
    const { end, untilIdle, answers, log } = await together();
    await end(new Error('a row does not have the shape'));
    await untilIdle();
    expect(answers).toMatchObject({ a1: 'a row does not have the shape', c1: 'c1' });
    expect(log.filter((what) => what.includes('a1'))).toHaveLength(1);
  });

  it('repeats after a lost connection what may be repeated, and says of the rest that nobody knows', async () => {
    const { run, end, untilIdle, answers, log } = staged();
    run('z1');
    run('a1* b1');
    await tick();
    await end();
    await end(new OutcomeUnknown()); // a1
    await end(new OutcomeUnknown()); // b1
    await untilIdle();
    expect(answers).toEqual({ z1: 'z1', a1: 'a1', b1: 'outcome_unknown' });
    expect(log.filter((what) => what.includes('a1'))).toHaveLength(2);
  });

  it('does not say "nothing was written" of a call whose first try nobody knows of', async () => {
    const { run, end, answers } = staged();
    run('z1');
    run('a1*');
    await tick();
    await end();
    await end(new OutcomeUnknown());
    await end(new DatabaseUnavailable());
    expect(answers).toEqual({ z1: 'z1', a1: 'outcome_unknown' });
  });
});

test('more than may wait is refused, and was not begun', async () => {
  const { run, untilIdle, answers, log, coalescer } = staged({ callsMax: 2 });
  run('z1 a1 b1 c1');
  await untilIdle();
  expect(answers).toEqual({ z1: 'z1', a1: 'a1', b1: 'b1', c1: 'backlog_full' });
  expect(log.join(' ')).not.toContain('c1');
  expect(coalescer.stats).toMatchObject({ refused: 1, waiting: 0, waitingBytes: 0 });
});

test('closing carries out what waits and refuses what comes later', async () => {
  const { run, untilIdle, answers, coalescer } = staged();
  run('z1 a1 b1');
  let closed = false;
  const closing = coalescer.close().then(() => (closed = true));
  run('c1');
  await tick();
  expect(closed).toBe(false);
  await untilIdle();
  await closing;
  await coalescer.close();
  expect(answers).toEqual({ z1: 'z1', a1: 'a1', b1: 'b1', c1: 'shutting_down' });
});
