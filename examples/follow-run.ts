// Starts a turn and follows it live. The iterator takes a broken connection up again by itself, behind the last event that it gave.

import { createClient } from '@runplane/client';

export async function ask(url: string, apiKey: string, question: string, say: (line: string) => void): Promise<string> {
  const client = createClient({ url, apiKey });
  const { run } = await client.admitTurn(
    'my-session',
    { run: { projectId: 'my-project', backendProfile: 'shell' }, payload: { text: question } },
    { idempotencyKey: `question-${question}` }, // the same key is the same turn, however often it is sent
  );
  for await (const { seq, type, payload } of client.followRun(run.id)) {
    say(`#${seq} ${type} ${JSON.stringify(payload)}`);
  }
  const { status, lastAssistantMessage } = await client.getResult(run.id);
  return `${status}: ${lastAssistantMessage ?? 'no answer'}`;
}

if (require.main === module) {
  const [url = '', question = 'How are you?'] = process.argv.slice(2);
  void ask(url, process.env['API_KEY'] ?? '', question, console.log).then(console.log);
}
