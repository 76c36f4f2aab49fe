// A runner in about 30 lines. It claims one run, works on its turn and reports the end; the SDK keeps the lease, sends the events in order
// and once, and aborts `signal` when the run is cancelled or lost.

import { runRunner, type RunnerEnd } from '@runplane/runner';

export function countWords(url: string, token: string, runId: string): Promise<RunnerEnd> {
  return runRunner({
    client: { url, token },
    runId,
    work: async ({ commands, emit, signal }) => {
      const { value: turn } = await commands.next();
      if (turn === undefined) throw new Error('the run has no open turn');
      await turn.ack();

      const text = JSON.stringify(turn.command.payload['text'] ?? '');
      const words = text.match(/\p{L}+/gu) ?? [];
      for (const word of words) {
        signal.throwIfAborted(); // a cancel ends the run as cancelled
        await emit('reasoning', { text: `“${word}” has ${word.length} letters.` });
      }
      await emit('assistant_message', { text: `You wrote ${words.length} words.`, final: true });
      return { terminalStatus: 'completed' };
    },
  });
}

if (require.main === module) {
  const [url = '', runId = ''] = process.argv.slice(2);
  void countWords(url, process.env['TOKEN'] ?? '', runId).then((end) => console.log(end.kind));
}
