import pg from 'pg';
import { connectionConfig } from './connection';

/** What pg makes of a configuration, which is what counts. */
function parameters(url: string, settings: Record<string, string> = {}) {
  return (new pg.Client(connectionConfig(url, 'runplane', 1_000, settings)) as unknown as { connectionParameters: Record<string, unknown> })
    .connectionParameters;
}

it('settings ride in the start-up packet, blanks escaped', () => {
  expect(parameters('postgresql://u:p@h/d', { TimeZone: 'UTC', default_transaction_isolation: 'read committed' })).toMatchObject({
    host: 'h',
    database: 'd',
    user: 'u',
    password: 'p',
    application_name: 'runplane',
    options: '-c TimeZone=UTC -c default_transaction_isolation=read\\ committed',
  });
});

it('options of the URL stay, and ours come after them', () => {
  expect(
    parameters('postgres://u@h/d?options=-c%20work_mem%3D8MB%20-c%20TimeZone%3DJapan&schema=runplane&application_name=x', {
      TimeZone: 'UTC',
    }),
  ).toMatchObject({
    application_name: 'runplane',
    options: '-c work_mem=8MB -c TimeZone=Japan -c TimeZone=UTC',
  });
});

it('a password with signs arrives as it is', () => {
  expect(parameters('postgresql://u:p%40%2F%3A%25@h/d')).toMatchObject({ password: 'p@/:%' });
});

it.each(['', 'nonsense', 'mysql://u:secret@h/d', 'postgresql//u:secret@h'])(
  'a URL that is none (%s) is refused without being shown',
  (url) => {
    expect(() => connectionConfig(url, 'x', 1, {})).toThrow(/^((?!secret).)*$/);
  },
);
