// The relay: cursors, epochs, blocked keys, an operator's calls.
const RELAY = 'libs/outbox/src/relay';
const passes = (name) => ({ file: `${RELAY}/relay.int.spec.ts`, name });
const decisions = (name) => ({ file: `${RELAY}/pass-decisions.spec.ts`, name });
const givenUp = { file: 'libs/runs/src/prune-parked-events.int.spec.ts', name: 'an event that its sink refuses for longer' };
const operated = (name) => ({ file: `${RELAY}/operate.int.spec.ts`, name });

export const relayGuards = [
  {
    name: 'a settle is fenced by owner and epoch',
    file: `${RELAY}/settle.sql.ts`,
    text: 'JOIN asked a ON a.shard = s.shard AND a.epoch = s.epoch WHERE s.sink = ${sink}::text AND s.owner = ${owner}::text',
    replacement: 'JOIN asked a ON a.shard = s.shard WHERE s.sink = ${sink}::text',
    test: passes('a pass whose shards were taken over meanwhile settles nothing'),
  },
  {
    name: 'what an operator did to a key in the middle of a pass is kept',
    file: `${RELAY}/settle.sql.ts`,
    text: 'WHERE k.revision = excluded.revision',
    replacement: '',
    test: operated('a skip in the middle of a pass is kept: the pass settles behind it and does not park what is next'),
  },
  {
    name: 'an event behind a refused one of its key is held',
    file: `${RELAY}/pass-decisions.ts`,
    text: 'if (record === undefined || this.#blocked.has(key)) {',
    replacement: 'if (record === undefined) {',
    test: decisions('refused'),
  },
  {
    name: 'the cursor does not pass what the sink has failed at',
    file: `${RELAY}/pass-decisions.ts`,
    text: 'if (!this.#settleItem(item)) return { place: done, whole: false };',
    replacement: 'this.#settleItem(item);',
    test: decisions('the sink fails'),
  },
  {
    name: 'a key of which something came behind is not free',
    file: `${RELAY}/pass-decisions.ts`,
    text: 'if (allDone && complete && !this.#holding.has(key)) {',
    replacement: 'if (allDone && complete) {',
    test: decisions('something came behind'),
  },
  {
    name: 'a relay that stops has not failed',
    file: `${RELAY}/pass-decisions.ts`,
    text: "if (!this.#isolate || outcome.reason === 'stopped') {",
    replacement: 'if (!this.#isolate) {',
    test: decisions('the relay stops'),
  },
  {
    name: 'a page that its bytes have cut ends with its last event',
    file: `${RELAY}/pass.sql.ts`,
    text: "'cut', EXISTS (SELECT FROM cuts c WHERE c.of_shard = o.of_shard AND c.part = o.part)",
    replacement: "'cut', false",
    test: passes('a pass ends with the event that passes its bytes'),
  },
  {
    name: 'a page that was full says that there is more',
    file: `${RELAY}/pass.sql.ts`,
    text: "'more', o.events_to >= ${limits.batchEvents}::int,",
    replacement: "'more', false,",
    test: passes('a pass ends with the event that passes its bytes'),
  },
  {
    name: 'an event of a blocked key is seen as one, whatever else its shard has',
    file: `${RELAY}/pass.sql.ts`,
    text: 's.has_blocked AND EXISTS (SELECT FROM',
    replacement: 'NOT s.has_blocked AND EXISTS (SELECT FROM',
    test: passes('a refused record blocks its key alone'),
  },
  {
    name: 'a cursor within a row reads the rest of the row',
    file: `${RELAY}/pass.sql.ts`,
    text: '(o.tx, o.position) >= (r.after_tx, r.start)',
    replacement: '(o.tx, o.position) > (r.after_tx, r.after_position)',
    test: passes('an append of many events is sent event by event, also when a pass ends within it, and what was erased is passed over'),
  },
  {
    name: 'a skip names the event',
    file: `${RELAY}/blocked-keys.ts`,
    text: 'if (blocked.tx !== place.tx || blocked.position !== place.position) {',
    replacement: 'if (blocked.tx === null) {',
    test: operated('an operator sees how a sink stands, and why a key waits, and skips, retries, disables and sends again'),
  },
  {
    name: 'a disabled sink is read by nobody',
    file: `${RELAY}/operate.sql.ts`,
    text: 'SET owner = NULL, expires_at = NULL, epoch = epoch + 1',
    replacement: 'SET epoch = epoch',
    test: operated('an operator sees how a sink stands, and why a key waits, and skips, retries, disables and sends again'),
  },
  {
    name: 'what a disabled sink held may be gone as well',
    file: `${RELAY}/operate.sql.ts`,
    text: 'OR EXISTS (SELECT FROM runplane.outbox_held h WHERE h.sink = ${sink}::text AND (h.tx, h.position) <= ${place}) AS "below"',
    replacement: 'AS "below"',
    test: { file: 'libs/outbox/src/feed-consumers.int.spec.ts', name: 'has passed what a disabled sink held' },
  },
  {
    name: 'an endpoint that is slow has not failed',
    file: 'libs/outbox/src/webhook/webhook-publisher.ts',
    text: 'if (hasFailed || performance.now() >= stop.beginsUntil) return;',
    replacement: 'if (hasFailed) return;',
    test: { file: 'libs/outbox/src/webhook/webhook-publisher.spec.ts', name: 'an endpoint that is slow has not failed' },
  },
  {
    name: 'a shard that a pass did not come to keeps its count of failures',
    file: `${RELAY}/settle.sql.ts`,
    text: 'WHEN a.is_well THEN 0 ELSE s.failures END',
    replacement: 'ELSE 0 END',
    test: passes('a shard that a pass did not come to keeps its count of failures, and does not back off'),
  },
  {
    name: 'of an event that tells of a dropped one nothing is told',
    file: 'libs/runs/src/prune-parked-events.ts',
    text: 'if (NOT_TOLD.includes(phase) || NOT_TOLD.includes(type)) return undefined;',
    replacement: '',
    test: givenUp,
  },
  {
    name: 'a tenant that wants copies loses no parked event without one',
    file: 'libs/runs/src/prune-parked-events.ts',
    text: 'if (policy.archive && archive === undefined) return { archiveMissing: true };',
    replacement: '',
    test: givenUp,
  },
  {
    name: 'retention gives up no event that it has not looked at',
    file: 'libs/outbox/src/relay/drop-parked-event.ts',
    text: 'if (!seen && (await findUndelivered(tx, parked)) !== undefined) return false;',
    replacement: '',
    test: givenUp,
  },
  {
    name: 'an event is given up only while its key is parked at it',
    file: 'libs/outbox/src/relay/drop-parked-event.ts',
    text: 'if (!(await isStillParked(tx, parked, days))) return false;',
    replacement: '',
    test: { file: 'tests/races/relay.spec.ts', name: 'of parked events finds nothing behind an operator’s retry' },
  },
  {
    name: 'a sink of which something is still held is not enabled anew',
    file: `${RELAY}/change-sink.ts`,
    text: 'const isForgotten = await forgetHeld(tx, sink, FORGET_HELD_MAX);',
    replacement: 'const isForgotten = (await forgetHeld(tx, sink, FORGET_HELD_MAX)) || true;',
    test: operated('what a sink holds is tried again, or forgotten, in parts'),
  },
];
