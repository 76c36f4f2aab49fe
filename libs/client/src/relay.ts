import {
  type BlockedKey,
  BlockedKeyPage,
  ChangedSink,
  type EnableSink,
  RelayExplanation,
  Republishing,
  type Republish,
  RetriedKeys,
  type RetryKeys,
  SinkStatus,
  SinkStatusList,
  type SkipEvent,
  SkippedEvent,
  type WebhookDelivery,
  WebhookDeliveryPage,
} from '@runplane/contracts';
import { callsOf } from './calls';
import type { CallOptions, Transport } from './transport';

export interface BlockedKeyFilter {
  state?: BlockedKey['state'] | undefined;
  key?: string | undefined;
  cursor?: string | undefined;
  limit?: number | undefined;
}

export interface WebhookDeliveryFilter {
  outcome?: WebhookDelivery['outcome'] | undefined;
  key?: string | undefined;
  cursor?: string | undefined;
  limit?: number | undefined;
}

const at = (sink: string): string => `/relay/sinks/${encodeURIComponent(sink)}`;

/** Calls about the sinks of the relay; they need the scope `operator`. */
export function relayCalls(transport: Transport) {
  const { get, post } = callsOf(transport);
  return {
    listSinks: (o?: CallOptions): Promise<SinkStatusList> => get('/relay/sinks', SinkStatusList, {}, o),

    getSink: (sink: string, o?: CallOptions): Promise<SinkStatus> => get(at(sink), SinkStatus, {}, o),

    listBlockedKeys: (sink: string, filter: BlockedKeyFilter = {}, o?: CallOptions): Promise<BlockedKeyPage> =>
      get(`${at(sink)}/keys`, BlockedKeyPage, { ...filter }, o),

    /** What was posted to a webhook's endpoint and what it answered, the newest first. */
    listWebhookDeliveries: (sink: string, filter: WebhookDeliveryFilter = {}, o?: CallOptions): Promise<WebhookDeliveryPage> =>
      get(`${at(sink)}/deliveries`, WebhookDeliveryPage, { ...filter }, o),

    /** Why the events of a key or a shard have or have not reached the sink. */
    explainSink: (sink: string, of: { key: string } | { shard: number }, o?: CallOptions): Promise<RelayExplanation> =>
      get(`${at(sink)}/why`, RelayExplanation, { ...of }, o),

    skipBlockedEvent: (sink: string, skip: SkipEvent, o?: CallOptions): Promise<SkippedEvent> =>
      post(`${at(sink)}/skip`, skip, SkippedEvent, o),

    retryBlockedKeys: (sink: string, retry: RetryKeys = {}, o?: CallOptions): Promise<RetriedKeys> =>
      post(`${at(sink)}/retry`, retry, RetriedKeys, o),

    republish: (sink: string, range: Republish, o?: CallOptions): Promise<Republishing> =>
      post(`${at(sink)}/republish`, range, Republishing, o),

    enableSink: (sink: string, enable: EnableSink = {}, o?: CallOptions): Promise<ChangedSink> =>
      post(`${at(sink)}/enable`, enable, ChangedSink, o),

    disableSink: (sink: string, o?: CallOptions): Promise<ChangedSink> => post(`${at(sink)}/disable`, undefined, ChangedSink, o),
  };
}
