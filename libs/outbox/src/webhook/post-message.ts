import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import { AddressRefused, guardedLookup, type AddressRule } from './guarded-lookup';

export interface Answer {
  readonly status: number;
  /** The beginning of what the endpoint said. */
  readonly text: string;
}

/** Of an answer only so much is read; the rest ends with its connection. */
const ANSWER_BYTES_MAX = 1_024;

/** One POST, without redirects. Errors: AddressRefused, the connection's, and the signal's reason. */
export function postMessage(
  url: URL,
  {
    body,
    headers,
    agent,
    passes,
    signal,
  }: { body: string; headers: Record<string, string>; agent: http.Agent; passes: AddressRule; signal: AbortSignal },
): Promise<Answer> {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  // A literal address is not looked up, and so is judged here.
  if (net.isIP(host) !== 0 && !passes(host)) return Promise.reject(new AddressRefused(host));
  const { request: open } = url.protocol === 'https:' ? https : http;
  return new Promise((resolve, reject) => {
    let answered = false;
    const request = open(url, { method: 'POST', headers, agent, signal, lookup: guardedLookup(passes) }, (response) => {
      const { statusCode: status = 0 } = response;
      answered = true;
      const text = beginningOf(response).catch((error: unknown) => {
        // Taken is taken, whatever becomes of the rest: an answer that never ends would have the event posted again for ever.
        if (status >= 200 && status < 300) return '';
        throw error;
      });
      text.then((said) => resolve({ status, text: said }), reject);
    });
    request.on('error', (error) => {
      if (!answered) reject(error); // else the answer ends with it
    });
    // An answer that would change the protocol (101) is neither an answer to Node nor an error, and nothing else comes after it.
    request.on('close', () => {
      if (!answered) reject(new Error('the endpoint ended the connection without an answer'));
    });
    request.end(body);
  });
}

async function beginningOf(response: http.IncomingMessage): Promise<string> {
  let text = Buffer.alloc(0);
  for await (const chunk of response) {
    text = Buffer.concat([text, chunk as Buffer]);
    if (text.length >= ANSWER_BYTES_MAX) break; // which destroys it
  }
  return text.toString('utf8', 0, ANSWER_BYTES_MAX);
}

/** Connections that stay for the next message; the addresses are judged anew for each that is made. */
export function openAgent(url: URL, keysAtOnce: number): http.Agent {
  const options = { keepAlive: true, maxSockets: keysAtOnce, maxFreeSockets: keysAtOnce };
  return url.protocol === 'https:' ? new https.Agent(options) : new http.Agent(options);
}
