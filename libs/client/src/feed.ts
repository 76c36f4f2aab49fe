import {
  CommittedFeedConsumer,
  DeletedFeedConsumer,
  FeedConsumer,
  FeedConsumerList,
  type FeedEvent,
  FeedExplanation,
  type FeedFilter,
  FeedPage,
  FeedStatus,
  RegisteredFeedConsumer,
  WAIT_SECONDS_MAX,
} from '@runplane/contracts';
import { callsOf } from './calls';
import { consumeFeed, type ConsumeFeed } from './consume-feed';
import { PATIENT, RETRY_DEFAULT } from './retry';
import type { CallOptions, ClientOptions, Transport } from './transport';

export interface FeedOptions extends CallOptions, FeedFilter {
  /** A cursor, `start` or `now`; `start` when absent. */
  after?: string | undefined;
  limit?: number | undefined;
  waitSeconds?: number | undefined;
}

const at = (name: string): string => `/feed/consumers/${encodeURIComponent(name)}`;

/** Calls about the feed and its registered readers. */
export function feedCalls(transport: Transport, { retry }: Pick<ClientOptions, 'retry'>) {
  const { get, post, put, call } = callsOf(transport);

  const readFeed = ({ after, limit, waitSeconds, stream, types, sessionId, runId, ...o }: FeedOptions = {}): Promise<FeedPage> =>
    get('/feed', FeedPage, { after, limit, wait: waitSeconds, stream, type: types, sessionId, runId }, o);

  const consumers = {
    /** Has the store keep the place of a reader; one that is there stays as it is. See consumeFeed. */
    registerFeedConsumer: (name: string, { after, ...o }: CallOptions & { after?: string } = {}): Promise<RegisteredFeedConsumer> =>
      put(at(name), after === undefined ? {} : { after }, RegisteredFeedConsumer, o),

    listFeedConsumers: async (o?: CallOptions): Promise<FeedConsumer[]> =>
      (await get('/feed/consumers', FeedConsumerList, {}, o)).consumers,

    getFeedConsumer: (name: string, o?: CallOptions): Promise<FeedConsumer> => get(at(name), FeedConsumer, {}, o),

    /** A compare-and-set: ProblemError `feed_consumer_moved` names the cursor as it is. The same place twice says that the reader lives. */
    commitFeedConsumer: (name: string, places: { from: string; to: string }, o?: CallOptions): Promise<CommittedFeedConsumer> =>
      post(`${at(name)}/commit`, places, CommittedFeedConsumer, o),

    /** `to`: a cursor, `start` or `now`. */
    rewindFeedConsumer: (name: string, to: string, o?: CallOptions): Promise<FeedConsumer> =>
      post(`${at(name)}/rewind`, { to }, FeedConsumer, o),
  };

  return {
    ...consumers,

    /** One page; follow `cursor`. */
    readFeed,

    /** Every event from a cursor on, without end; keep each event's `cursor` to go on behind it another time. */
    async *followFeed({ after, ...o }: FeedOptions = {}): AsyncGenerator<FeedEvent, never, undefined> {
      for (let cursor = after; ;) {
        const page = await readFeed({ waitSeconds: WAIT_SECONDS_MAX, ...o, retry: { ...o.retry, ...PATIENT }, after: cursor });
        yield* page.events;
        cursor = page.cursor;
      }
    },

    /** Works through the feed under a name, for as long as it is let. See ConsumeFeed. */
    consumeFeed: (options: ConsumeFeed): Promise<void> => consumeFeed({ readFeed, ...consumers }, { ...RETRY_DEFAULT, ...retry }, options),

    /** Not repeated after a lost answer: a repeat would find nothing. */
    deleteFeedConsumer: (name: string, o?: CallOptions): Promise<DeletedFeedConsumer> =>
      call({ method: 'DELETE', path: at(name), answer: DeletedFeedConsumer, repeatable: false }, o),

    getFeedStatus: (o?: CallOptions): Promise<FeedStatus> => get('/feed/status', FeedStatus, {}, o),

    /** Why readers see nothing new, or a consumer is no further. */
    explainFeed: ({ consumer, ...o }: CallOptions & { consumer?: string } = {}): Promise<FeedExplanation> =>
      get('/feed/why', FeedExplanation, { consumer }, o),

    /** The same of the feed of all tenants; needs the scope `operator`. */
    getStoreFeedStatus: (o?: CallOptions): Promise<FeedStatus> => get('/store/feed', FeedStatus, {}, o),

    explainStoreFeed: (o?: CallOptions): Promise<FeedExplanation> => get('/store/feed/why', FeedExplanation, {}, o),
  };
}
