import {
  DRIVER_MOVES,
  DRIVER_STATES,
  fieldOf,
  INBOX_ENTRIES_MAX,
  InboxFull,
  OPEN_REQUESTS_MAX,
  type DriverCondition,
  type DriverState,
  type JsonObject,
  type JsonValue,
  type SessionLogEvent,
} from '@runplane/contracts';
import { booleanField, integerField, isInteger, isJsonObject, textField } from './fields';
import type { Projection } from './projection';

// The snapshot of a session: what cold starts look at to find sessions that were interrupted. It has no content of messages and is no source of
// truth: a driver that recovers reads the log. States of the driver: DRIVER_MOVES. What differs from the original on purpose: docs/adr/0020.
//
// Only events that mean something to it touch it. Sequence, feed cursor, type of the last event and the current window are put in on read.

export interface InboxEntry {
  readonly inputId: string;
  readonly wakeup: boolean;
}

/** Something in the log that does not fit what was before it; it is shown, and changes nothing else. */
export interface SnapshotAnomaly {
  readonly sequence: number;
  readonly type: string;
  readonly what: string;
}

export interface Snapshot {
  readonly activeTurnId: string | null;
  readonly activeStepId: string | null;
  readonly driverState: DriverState;
  readonly inbox: { readonly nextTurn: readonly InboxEntry[]; readonly nextStep: readonly InboxEntry[] };
  /** Once the inbox was spliced, splices are the only word on it. */
  readonly hasInboxSplices: boolean;
  readonly pendingApprovalIds: readonly string[];
  readonly pendingUserInputIds: readonly string[];
  /** How many there were, and the last ones. */
  readonly anomalyCount: number;
  readonly anomalies: readonly SnapshotAnomaly[];
}

const ANOMALIES_KEPT = 20;

export const EMPTY_SNAPSHOT: Snapshot = {
  activeTurnId: null,
  activeStepId: null,
  driverState: 'idle',
  inbox: { nextTurn: [], nextStep: [] },
  hasInboxSplices: false,
  pendingApprovalIds: [],
  pendingUserInputIds: [],
  anomalyCount: 0,
  anomalies: [],
};

/** What an event does to the fields, and what of it does not fit. */
type Change = readonly [change: Partial<Snapshot>, anomaly?: string | undefined];

const FIELD_CHANGES: Readonly<Record<string, (before: Snapshot, event: SessionLogEvent) => Change>> = {
  'turn/start': (before, { turnId }) => [
    { activeTurnId: turnId },
    before.activeTurnId !== null && before.activeTurnId !== turnId ? 'a turn started while another was active' : undefined,
  ],
  'step/start': (_, { stepId }) => [{ activeStepId: stepId }],
  'step/end': () => [{ activeStepId: null }],
  'turn/end': (before, { turnId }) =>
    before.activeTurnId === turnId ? [{ activeTurnId: null, activeStepId: null }] : [{}, 'the turn that ended was not the active one'],
  'approval/requested': (before, { data }) => asked(before, 'pendingApprovalIds', textField(data, 'approval_id')),
  'approval/resolved': (before, { data }) => {
    const id = textField(data, 'approval_id') ?? '';
    if (!before.pendingApprovalIds.includes(id)) return [{}, 'no approval of this id was open'];
    return [{ pendingApprovalIds: before.pendingApprovalIds.filter((other) => other !== id) }];
  },
  'user-input/requested': (before, { data }) => asked(before, 'pendingUserInputIds', textField(data, 'request_id')),
  'user-input/resolved': (before, { data }) => {
    const id = textField(data, 'request_id') ?? '';
    if (!before.pendingUserInputIds.includes(id)) return [{}, 'no request for input of this id was open'];
    return [{ pendingUserInputIds: before.pendingUserInputIds.filter((other) => other !== id) }];
  },
  'input/enqueued': (before, { data }) => {
    if (before.hasInboxSplices) return [{}];
    if (overfills(before, 1)) return [{}, INBOX_IS_FULL];
    const { inbox } = before;
    const queue = queueOf(textField(data, 'target'));
    return [{ inbox: { ...inbox, [queue]: [...inbox[queue], entryOf(data)] } }];
  },
  'input/entered': leftInbox,
  'input/discarded': leftInbox,
  'agent/inbox/spliced': spliced,
};

/** An append is refused for it; in a log that no guard has seen it is told: no log makes a snapshot without bound. */
const INBOX_IS_FULL = 'the inbox is full';

const sizeOf = ({ inbox }: Snapshot): number => inbox.nextTurn.length + inbox.nextStep.length;

/** What takes as many out as it puts in is never too much. */
const overfills = (before: Snapshot, grownBy: number): boolean => grownBy > 0 && sizeOf(before) + grownBy > INBOX_ENTRIES_MAX;

/** More than may be open were never asked of this store: an append of them is refused. */
function asked(before: Snapshot, open: 'pendingApprovalIds' | 'pendingUserInputIds', id: string | undefined): Change {
  const ids = before[open];
  if (id === undefined || id === '' || ids.includes(id)) return [{}];
  return ids.length >= OPEN_REQUESTS_MAX ? [{}, 'too many requests are open'] : [{ [open]: [...ids, id] }];
}

function queueOf(target: string | undefined): 'nextTurn' | 'nextStep' {
  return target === 'next-turn' ? 'nextTurn' : 'nextStep';
}

function entryOf(data: JsonObject): InboxEntry {
  return { inputId: textField(data, 'input_id') ?? '', wakeup: booleanField(data, 'wakeup', true) };
}

function leftInbox({ inbox, hasInboxSplices }: Snapshot, { data }: SessionLogEvent): Change {
  if (hasInboxSplices) return [{}];
  const left = textField(data, 'input_id') ?? '';
  const rest = (queue: readonly InboxEntry[]): readonly InboxEntry[] => queue.filter(({ inputId }) => inputId !== left);
  return [{ inbox: { nextTurn: rest(inbox.nextTurn), nextStep: rest(inbox.nextStep) } }];
}

/** A splice that does not fit the queue is told as an anomaly, and does not become the word on the inbox. */
function spliced(before: Snapshot, { data }: SessionLogEvent): Change {
  const { inbox } = before;
  const name = queueOf(textField(data, 'target'));
  const queue = inbox[name];
  const index = fieldOf(data, 'index') === undefined ? queue.length : integerField(data, 'index');
  const deleteCount = fieldOf(data, 'delete_count') === undefined ? 0 : integerField(data, 'delete_count');
  const given = fieldOf(data, 'inserted') ?? [];
  if (index === undefined || deleteCount === undefined || !Array.isArray(given) || !given.every(isJsonObject))
    return [{}, 'the splice is malformed'];
  if (index < 0 || index > queue.length || deleteCount < 0 || deleteCount > queue.length - index)
    return [{}, 'the splice is beyond the queue'];
  if (overfills(before, given.length - deleteCount)) return [{}, INBOX_IS_FULL];
  const inserted = given.map(entryOf);
  return [
    { inbox: { ...inbox, [name]: queue.toSpliced(index, deleteCount, ...inserted) }, hasInboxSplices: true },
    // It keeps its place, or the indexes of later splices would mean other entries.
    inserted.some(({ inputId }) => inputId === '') ? 'an entry without an id was inserted' : undefined,
  ];
}

/** All other events, whatever their names, leave the snapshot as it is. */
const TOUCHING = new Set([...DRIVER_MOVES.map(({ on }) => on), ...Object.keys(FIELD_CHANGES)]);

const AT_REST: readonly DriverState[] = ['idle', 'turn_completed'];

const CONDITIONS: Readonly<Record<DriverCondition, (before: Snapshot, after: Snapshot, event: SessionLogEvent) => boolean>> = {
  asked: (before, after) =>
    after.pendingApprovalIds.length < before.pendingApprovalIds.length ||
    after.pendingUserInputIds.length < before.pendingUserInputIds.length,
  'at-work': (before) => !AT_REST.includes(before.driverState),
  'waits-for-input': (before) => before.driverState === 'input_waiting',
  'turn-over': (before) => before.driverState === 'turn_completed',
  'own-turn': (before, _, { turnId }) => before.activeTurnId === turnId,
  'approvals-open': (_, after) => after.pendingApprovalIds.length > 0,
  'inputs-open': (_, after) => after.pendingUserInputIds.length > 0,
  'inbox-empty': (_, { inbox }) => inbox.nextTurn.length + inbox.nextStep.length === 0,
  attention: (_, __, { data }) => fieldOf(data, 'attention_required') === true,
};

/** The snapshot after the event; the same object where nothing changes. */
export function applyToSnapshot(before: Snapshot, event: SessionLogEvent): Snapshot {
  if (!TOUCHING.has(event.type)) return before;
  const [change, anomaly] = FIELD_CHANGES[event.type]?.(before, event) ?? [{}];
  const after: Snapshot = { ...before, ...change };
  const move = DRIVER_MOVES.find(({ on, when }) => on === event.type && when.every((name) => CONDITIONS[name](before, after, event)));
  if (anomaly === undefined && Object.keys(change).length === 0 && (move === undefined || move.to === before.driverState)) return before;
  return {
    ...after,
    driverState: move?.to ?? before.driverState,
    ...(anomaly !== undefined && {
      anomalyCount: before.anomalyCount + 1,
      anomalies: [...before.anomalies, { sequence: event.sequence, type: event.type, what: anomaly }].slice(-ANOMALIES_KEPT),
    }),
  };
}

/** Whether a cold start has to look at the session: a turn is open, input waits with a wake-up, or a person was asked. */
export function needsRecovery({ activeTurnId, inbox, pendingApprovalIds, pendingUserInputIds }: Snapshot): boolean {
  return (
    activeTurnId !== null ||
    [...inbox.nextTurn, ...inbox.nextStep].some(({ wakeup }) => wakeup) ||
    pendingApprovalIds.length > 0 ||
    pendingUserInputIds.length > 0
  );
}

/** A stored snapshot; what is malformed in it is read as new. */
export function parseSnapshot(stored: JsonObject | null): Snapshot {
  if (stored === null) return EMPTY_SNAPSHOT;
  const inbox = isJsonObject(stored['inbox']) ? stored['inbox'] : {};
  return {
    activeTurnId: textOrNull(stored['activeTurnId']),
    activeStepId: textOrNull(stored['activeStepId']),
    driverState: DRIVER_STATES.find((state) => state === stored['driverState']) ?? 'idle',
    inbox: { nextTurn: entriesOf(inbox['nextTurn']), nextStep: entriesOf(inbox['nextStep']) },
    hasInboxSplices: stored['hasInboxSplices'] === true,
    pendingApprovalIds: idsOf(stored['pendingApprovalIds']),
    pendingUserInputIds: idsOf(stored['pendingUserInputIds']),
    anomalyCount: isInteger(stored['anomalyCount']) ? stored['anomalyCount'] : 0,
    anomalies: listOf(stored['anomalies']).flatMap((entry) =>
      isJsonObject(entry) && isInteger(entry['sequence']) && typeof entry['type'] === 'string' && typeof entry['what'] === 'string'
        ? [{ sequence: entry['sequence'], type: entry['type'], what: entry['what'] }]
        : [],
    ),
  };
}

const listOf = (value: JsonValue | undefined): readonly JsonValue[] => (Array.isArray(value) ? value : []);
const textOrNull = (value: JsonValue | undefined): string | null => (typeof value === 'string' ? value : null);
const idsOf = (value: JsonValue | undefined): string[] => listOf(value).filter((id) => typeof id === 'string');
const entriesOf = (value: JsonValue | undefined): InboxEntry[] =>
  listOf(value).flatMap((entry) =>
    isJsonObject(entry) && typeof entry['inputId'] === 'string' ? [{ inputId: entry['inputId'], wakeup: entry['wakeup'] === true }] : [],
  );

interface State {
  readonly sessionId: string;
  readonly stored: JsonObject | null;
  readonly before: Snapshot;
  readonly snapshot: Snapshot;
}

export const snapshotProjection: Projection<State> = {
  name: 'snapshot',
  version: 1,
  touches: (type) => TOUCHING.has(type),
  load: () => undefined,
  initial(_, { sessionId, head: { snapshot: stored } }) {
    const before = parseSnapshot(stored);
    return { sessionId, stored, before, snapshot: before };
  },
  guard({ sessionId, snapshot }, event) {
    const [, anomaly] = FIELD_CHANGES[event.type]?.(snapshot, event) ?? [];
    if (anomaly !== INBOX_IS_FULL) return;
    throw new InboxFull(`In session ${sessionId} ${sizeOf(snapshot)} inputs wait: repeat the call when some have been taken.`, {
      sessionId,
      entriesMax: INBOX_ENTRIES_MAX,
    });
  },
  apply: (state, event) => ({ ...state, snapshot: applyToSnapshot(state.snapshot, event) }),
  writes: () => [],
  head({ stored, before, snapshot }) {
    if (stored !== null && snapshot === before) return {};
    return { snapshot: snapshot as unknown as JsonObject, driverState: snapshot.driverState, needsRecovery: needsRecovery(snapshot) };
  },
};
