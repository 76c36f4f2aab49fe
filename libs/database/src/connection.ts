import type pg from 'pg';

/** Settings that a connection asks for when it starts, as `-c name=value`. */
export type StartupSettings = Readonly<Record<string, string>>;

/**
 * The configuration of one connection. Settings ride in the start-up packet: they hold before the first statement and survive whatever a
 * statement does; those in the URL's own `options` come first, so ours win.
 */
export function connectionConfig(
  url: string,
  applicationName: string,
  connectTimeoutMs: number,
  settings: StartupSettings,
): pg.ClientConfig {
  const parsed = parseUrl(url);
  const options = [parsed.searchParams.get('options'), ...Object.entries(settings).map(([name, value]) => `-c ${name}=${escaped(value)}`)];
  // The parts of a connection string win over the other fields of a configuration.
  for (const name of ['options', 'application_name', 'schema']) parsed.searchParams.delete(name);
  const joined = options.filter((option) => option !== null && option !== '').join(' ');
  return {
    connectionString: parsed.toString(),
    application_name: applicationName,
    connectionTimeoutMillis: connectTimeoutMs,
    keepAlive: true,
    ...(joined === '' ? {} : { options: joined }),
  };
}

function parseUrl(url: string): URL {
  if (URL.canParse(url)) {
    const parsed = new URL(url);
    if (/^postgres(ql)?:$/.test(parsed.protocol)) return parsed;
  }
  throw new Error('the database URL is not of the form postgresql://user:password@host:port/database'); // never shown itself: it holds a password
}

const escaped = (value: string): string => value.replace(/[\\ ]/g, '\\$&');
