import { readFileSync } from 'node:fs';
import path from 'node:path';
import { useApi } from '../support/test-api';

const api = useApi();

interface Step {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly url: string;
  readonly body: string;
  readonly status: number;
}

/** Of the document's blocks of HTTP: a line with method and path, the body, the status behind an arrow. */
function stepsOf(document: string): Step[] {
  const blocks = [...document.matchAll(/^```http\n([\s\S]*?)^```/gm)].map(([, block = '']) => block);
  return blocks.flatMap((block) =>
    [...block.matchAll(/^(GET|POST|DELETE) (\S+)\n([\s\S]*?)→ (\d{3})$/gm)].map(([, method, url = '', body = '', status]) => ({
      method: method as Step['method'],
      url,
      body,
      status: Number(status),
    })),
  );
}

const isJson = (type: unknown): boolean => /^application\/(problem\+)?json/.test(String(type));

describe('the example of docs/sessions.md', () => {
  it('is answered as it says', async () => {
    const steps = stepsOf(readFileSync(path.resolve(__dirname, '../../docs/sessions.md'), 'utf8'));
    expect(steps.length).toBeGreaterThan(9);

    const answers: Record<string, unknown>[] = [];
    for (const { method, url, body, status } of steps) {
      const headers = { authorization: `Bearer ${api.adminKey}`, ...(body !== '' && { 'content-type': 'application/json' }) };
      const answer = await api.app.inject({ method, url, headers, ...(body !== '' && { payload: body }) });
      expect({ url, status: answer.statusCode, answer: answer.statusCode === status ? undefined : answer.json() }).toEqual({
        url,
        status,
        answer: undefined,
      });
      answers.push(isJson(answer.headers['content-type']) ? answer.json() : { text: answer.body });
    }

    const of = (url: string) => answers[steps.findIndex((step) => step.url.startsWith(url))];
    expect(of('/v1/sessions/s1/snapshot')).toMatchObject({ snapshot: { driverState: 'idle', activeTurnId: null } });
    expect(of('/v1/sessions/s1/context-search')).toMatchObject({ matches: [{ role: 'tool' }, { role: 'assistant' }], cursor: null });
    const refusals = answers.filter((answer) => 'code' in answer).map(({ code }) => code);
    expect(refusals).toEqual(['session_lease_lost', 'session_deleted']);
    expect(of('/v1/sessions/s2/events')).toMatchObject({ events: [{}, {}, {}, {}, { type: 'session/forked' }] });
    expect(String(of('/v1/sessions/s1/export')?.['text']).split('\n')[0]).toContain('"type":"session"');
  });
});
