import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { pipelined, type Pipelined } from '../testing/pipelined';
import { OpenAnswers } from './open-answers';

let client: Pipelined;
afterEach(() => {
  client.close();
});

const openIn = ({ replies }: Pipelined): OpenAnswers => {
  const answers = new OpenAnswers();
  for (const { raw, request } of replies) answers.add(raw, request.raw.socket);
  return answers;
};

test('an answer is open until it has gone out', async () => {
  client = await pipelined(3);
  const answers = openIn(client);
  const [first, second, third] = client.replies.map(({ raw }) => raw) as [ServerResponse, ServerResponse, ServerResponse];

  second.end(); // waits for the first
  expect(answers.count).toBe(3);
  const gone = [first, second].map((answer) => once(answer, 'finish'));
  first.end();
  await Promise.all(gone);
  expect(answers.count).toBe(1);
  third.end();
  await once(third, 'finish');

  expect(answers.count).toBe(0);
});

test('none is open of a connection that has closed, also those that waited for their turn; none opens behind that', async () => {
  client = await pipelined(20);
  const answers = openIn(client);
  expect(answers.count).toBe(20);
  const sockets = new Set(client.replies.map(({ request }) => request.raw.socket));

  const closed = [...sockets].map((socket) => once(socket, 'close'));
  client.socket.destroy();
  await Promise.all(closed);

  expect(answers.count).toBe(0);
  expect(openIn(client).count).toBe(0);
});
