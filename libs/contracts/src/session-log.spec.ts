import { v5 } from 'uuid';
import { importedEventId, sessionEventId } from './session-log';

describe('the id of a session event', () => {
  test.each([
    ['session-1', 0, 'dcf54b0c611b56a999c1bfe73310f388'],
    ['session-1', 1, '0a4fb17102c55f76bfc9342bf3a99a15'],
    ['a:1', 2, '5116a1410b3e5472807f519f7b6cbc34'],
    ['会话', 7, 'a2aa8afb4da05c429eb2a079eaef3ea2'],
  ])('of the imported session %s at %i is the one that it had', (sessionId, sequence, id) => {
    expect(importedEventId(sessionId, sequence)).toBe(id);
  });

  test('is a UUID of version 5 in the namespace of URLs', () => {
    for (let sequence = 0; sequence < 100; sequence += 1) {
      const id = sessionEventId('store', { tenantId: 'tenant', incarnation: 'life' }, sequence);
      expect(id).toBe(v5(`runplane:store:life:tenant:${sequence}`, v5.URL).replaceAll('-', ''));
    }
  });
});
