import {
  CHANNEL_ADDRESS_BYTES_MAX,
  DuplicateInbound,
  fieldOf,
  freeText,
  isIdentifier,
  utf8Bytes,
  type DeliveryState,
  type JsonObject,
  type JsonValue,
  type SessionLogEvent,
} from '@runplane/contracts';
import { z } from 'zod';
import { channelLoad, channelWrites } from './channel.sql';
import { isJsonObject, textField } from './fields';
import { RepeatedEvent, type Projection } from './projection';

// Channels of a session: which addresses are bound to it, which messages came in (each once), where the answer to a turn goes, and what became of
// messages that went out. Four tables; the original's one document is built on read (readChannelState).

export interface Binding {
  readonly sequence: number;
  readonly data: JsonObject;
}

export interface Inbound extends InboundKey {
  readonly sequence: number;
  readonly time: number;
  /** Of one that is stored already only its place is known. */
  readonly data: JsonObject | undefined;
}

export interface InboundKey {
  readonly address: string;
  readonly messageId: string;
}

export interface Route {
  readonly sequence: number;
  /** Undefined: the turn of a stored route has ended, the rest of it is as it was. */
  readonly source: JsonObject | undefined;
  readonly endedAt: number | null;
}

/** What a batch does to one delivery; one that it has not queued keeps what is stored of its queueing. */
export interface Delivery {
  readonly state: DeliveryState;
  readonly isQueuedHere: boolean;
  readonly data: JsonObject | null;
  readonly queuedSequence: number | null;
  readonly completedSequence: number | null;
  readonly error: string | null;
  readonly time: number;
}

/** The rows that a batch makes; null: the row goes. */
export interface ChannelState {
  readonly bindings: ReadonlyMap<string, Binding | null>;
  readonly inbounds: ReadonlyMap<string, Inbound>;
  readonly routes: ReadonlyMap<string, Route>;
  readonly deliveries: ReadonlyMap<string, Delivery>;
}

const NO_CHANGE: ChannelState = { bindings: new Map(), inbounds: new Map(), routes: new Map(), deliveries: new Map() };

/** A part of an address, or a message's id: an identifier, or a number other than 0; undefined: none, or something that no key could hold. */
function channelId(data: JsonObject, name: string): string | undefined {
  const value = fieldOf(data, name);
  const id = typeof value === 'number' && value !== 0 ? String(value) : value;
  return typeof id === 'string' && isIdentifier(id) ? id : undefined;
}

/** The address that an object names, as the compact JSON array of channel, account and conversation; undefined: none. */
export function addressOf(data: JsonObject): string | undefined {
  const parts = [channelId(data, 'channel_id'), channelId(data, 'account_id'), channelId(data, 'conversation_id')];
  const address = JSON.stringify(parts);
  return parts.includes(undefined) || utf8Bytes(address) > CHANNEL_ADDRESS_BYTES_MAX ? undefined : address;
}

/** The key of a message; in the original's document it is `<address>:<JSON string of the message id>`. */
export function inboundKeyOf(data: JsonObject): InboundKey | undefined {
  const address = addressOf(data);
  const messageId = channelId(data, 'message_id');
  return address === undefined || messageId === undefined ? undefined : { address, messageId };
}

export const inboundName = ({ address, messageId }: InboundKey): string => `${address}:${JSON.stringify(messageId)}`;

function deliveryId(data: JsonObject): string | undefined {
  const id = textField(data, 'delivery_id');
  return id !== undefined && isIdentifier(id) ? id : undefined;
}

type Apply = (state: ChannelState, event: SessionLogEvent) => ChannelState;

const APPLY: Readonly<Record<string, Apply>> = {
  'channel/bound': (state, event) => bind(state, event, { sequence: event.sequence, data: event.data }),
  'channel/unbound': (state, event) => bind(state, event, null),
  'channel/inbound'(state, { sequence, time, data }) {
    const key = inboundKeyOf(data);
    return key === undefined
      ? state
      : { ...state, inbounds: new Map(state.inbounds).set(inboundName(key), { ...key, sequence, time, data }) };
  },
  'input/enqueued'(state, { sequence, turnId, data }) {
    const source = fieldOf(data, 'message_source');
    if (turnId === null || !isJsonObject(source) || addressOf(source) === undefined) return state;
    return { ...state, routes: new Map(state.routes).set(turnId, { sequence, source, endedAt: null }) };
  },
  'turn/end'(state, { sequence, turnId, time }) {
    if (turnId === null) return state;
    const route = state.routes.get(turnId) ?? { sequence, source: undefined };
    return { ...state, routes: new Map(state.routes).set(turnId, { ...route, endedAt: time }) };
  },
  'channel/delivery/queued': (state, { sequence, time, data }) =>
    deliver(state, data, () => ({
      state: 'queued',
      isQueuedHere: true,
      data,
      queuedSequence: sequence,
      completedSequence: null,
      error: null,
      time,
    })),
  'channel/delivery/succeeded': (state, event) => deliver(state, event.data, (known) => completed(known, 'succeeded', event)),
  'channel/delivery/failed': (state, event) => deliver(state, event.data, (known) => completed(known, 'failed', event)),
};

function bind(state: ChannelState, { data }: SessionLogEvent, binding: Binding | null): ChannelState {
  const address = addressOf(data);
  return address === undefined ? state : { ...state, bindings: new Map(state.bindings).set(address, binding) };
}

function deliver(state: ChannelState, data: JsonObject, after: (known: Delivery | undefined) => Delivery): ChannelState {
  const id = deliveryId(data);
  return id === undefined ? state : { ...state, deliveries: new Map(state.deliveries).set(id, after(state.deliveries.get(id))) };
}

function completed(known: Delivery | undefined, state: 'succeeded' | 'failed', { sequence, time, data }: SessionLogEvent): Delivery {
  const unknown = { isQueuedHere: false, data: null, queuedSequence: null };
  return {
    ...(known ?? unknown),
    state,
    completedSequence: sequence,
    error: state === 'failed' ? errorText(fieldOf(data, 'error')) : null,
    time,
  };
}

function errorText(error: JsonValue | undefined): string | null {
  if (error === undefined || error === null) return null;
  return freeText(typeof error === 'string' ? error : JSON.stringify(error));
}

const Loaded = z.array(z.object({ address: z.string(), messageId: z.string(), sequence: z.string().transform(Number) })).nullish();

export const channelProjection: Projection<ChannelState> = {
  name: 'channel',
  version: 1,
  touches: (type) => Object.hasOwn(APPLY, type),

  load(events, session) {
    const keys = events.filter(({ type }) => type === 'channel/inbound').flatMap(({ data }) => inboundKeyOf(data) ?? []);
    return keys.length === 0 ? undefined : channelLoad(session, keys);
  },

  initial(loaded) {
    const stored = Loaded.parse(loaded)?.map((inbound): [string, Inbound] => [
      inboundName(inbound),
      { ...inbound, time: 0, data: undefined },
    ]);
    return stored === undefined ? NO_CHANGE : { ...NO_CHANGE, inbounds: new Map(stored) };
  },

  guard({ inbounds }, { type, data }) {
    const key = type === 'channel/inbound' ? inboundKeyOf(data) : undefined;
    const known = key && inbounds.get(inboundName(key));
    if (known === undefined) return;
    const { sequence } = known;
    throw new RepeatedEvent(sequence, new DuplicateInbound(`This message came in as event ${sequence}.`, { sequence }));
  },

  apply: (state, event) => APPLY[event.type]?.(state, event) ?? state,
  writes: channelWrites,
  common({ bindings, inbounds, routes, deliveries }) {
    if (bindings.size + inbounds.size + deliveries.size > 0) return undefined;
    const endedTurns = [...routes].flatMap(([turnId, { source, endedAt }]) =>
      source === undefined && endedAt !== null ? [{ turnId, endedAt }] : [],
    );
    return endedTurns.length === routes.size ? { endedTurns } : undefined;
  },
};
