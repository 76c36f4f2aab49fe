/** Every limit that crosses the wire, once, with its unit last. SQL gets them as parameters; CHECK constraints repeat some. */

/** Epochs, producer sequences and numbers of commands: what PostgreSQL's integer holds. */
export const COUNTER_MAX = 2_147_483_647;
export const EVENT_BYTES_MAX = 1024 * 1024;
/** A call's events together; the event log stays readable in one response. */
export const APPEND_BYTES_MAX = 4 * 1024 * 1024;
export const APPEND_EVENTS_MAX = 500;
export const COMMAND_PAYLOAD_BYTES_MAX = 1024 * 1024;
export const HTTP_BODY_BYTES_MAX = 5 * 1024 * 1024;
/** Policies, workspace references and the like are configuration, not content. */
export const REFERENCE_BYTES_MAX = 64 * 1024;
export const JSON_DEPTH_MAX = 64;
export const IDENTIFIER_BYTES_MAX = 200;
/** What a list shows of a session beside its columns; a page has up to 200 of them. */
export const SESSION_SUMMARY_BYTES_MAX = 8 * 1024;
export const REASON_CODE_POINTS_MAX = 500;
export const FAILURE_MESSAGE_CODE_POINTS_MAX = 2000;
export const TITLE_CODE_POINTS_MAX = 120;
export const SEARCH_CODE_POINTS_MAX = 200;

export const LIST_ROWS_DEFAULT = 50;
export const LIST_ROWS_MAX = 200;
export const RUN_LIST_ROWS_DEFAULT = 25;
export const RUN_LIST_ROWS_MAX = 100;
export const EVENT_LIST_ROWS_DEFAULT = 100;
export const EVENT_LIST_ROWS_MAX = 500;
/** A page of events or commands ends with the row whose payload passes this, so that no reader makes a process hold hundreds of megabytes. */
export const PAGE_BYTES_MAX = 4 * 1024 * 1024;
/** A page of a list reads at most so many rows for its filter, whatever it finds; it ends short then and says where to go on. */
export const LIST_SCAN_ROWS_MAX = 10_000;
/** Distinct values that a facet tells. */
export const FACET_VALUES_MAX = 200;
/** What an index of PostgreSQL takes with room for its other columns; a longer path is in the run and its search, not in filter and facet. */
export const WORKSPACE_PATH_BYTES_MAX = 1024;
/** A page of the feed never reads further than this, so that a filter cannot make one call scan the whole table. */
export const FEED_SCAN_ROWS_MAX = 10_000;
/** Types that one reader of the feed may ask for. */
export const FEED_TYPES_MAX = 50;
/** Registered consumers of one tenant: each may hold back what retention removes, and is looked at by status. */
export const FEED_CONSUMERS_MAX = 100;
/** A consumer's backlog is counted so far; beyond it the answer says that it is longer. In a list less, for each of many. */
export const FEED_LAG_ROWS_MAX = 10_000;
export const FEED_LAG_LIST_ROWS_MAX = 1_000;
/** What is shown of the statement that holds the feed back. */
export const FEED_HOLDUP_QUERY_CODE_POINTS_MAX = 200;
/** A consumer that has not been heard of for so long holds back no retention. */
export const FEED_CONSUMER_SILENT_DAYS_DEFAULT = 14;
/** Parked keys that one call lets be tried again, and held events that one call forgets: each is one transaction. */
export const RETRY_KEYS_MAX = 1_000;
export const FORGET_HELD_MAX = 10_000;
/** An event that a sink has refused for good is given up when it has waited for so long. */
export const PARKED_DAYS_DEFAULT = 30;
/** How long events stay in the outbox for readers that are not registered. */
export const OUTBOX_KEEP_DAYS_DEFAULT = 7;
/** Of one statement, and of one pass of the pruner. */
export const OUTBOX_PRUNE_BATCH_ROWS = 5_000;
export const OUTBOX_PRUNE_PASS_ROWS = 100_000;

/** A page of sessions never looks at more of them than this: a filter that few match does not make one call read the whole table. */
export const SESSION_SCAN_ROWS_MAX = 10_000;

/** Below the 60 s at which common proxies cut an idle request. */
export const WAIT_SECONDS_MAX = 30;

export const CLAIM_LEASE_MS_MIN = 5_000;
export const CLAIM_LEASE_MS_DEFAULT = 30_000;
export const CLAIM_LEASE_MS_MAX = 600_000;
/** A dispatched run that nobody claimed by then is stale: its program never started. */
export const CLAIM_DEADLINE_MS_DEFAULT = 300_000;
export const CANCEL_GRACE_MS_DEFAULT = 30_000;
export const CANCEL_GRACE_MS_MAX = 600_000;

/** Tool calls of a run without a result: each gets one when the run ends, in the transaction that ends it. */
export const OPEN_TOOL_CALLS_MAX = 10_000;

/** Of a run, from its first claim. */
export const RUN_DURATION_MS_MIN = 1_000;
export const RUN_DURATION_MS_MAX = 7 * 86_400_000;

export const RUN_ATTEMPTS_MAX_DEFAULT = 3;
export const RUN_ATTEMPTS_MAX = 20;
export const DISPATCH_ATTEMPTS_MAX = 8;
export const DISPATCH_LEASE_MS = 30_000;
export const DISPATCH_BACKOFF_MS_MIN = 1_000;
export const DISPATCH_BACKOFF_MS_MAX = 300_000;
export const CLAIM_BATCH_ROWS_MAX = 100;
/** Diagnostics of refused writes: at most one per runner, epoch and this time. */
export const REFUSAL_RECORD_EVERY_MS = 60_000;

/** A place that is held while the outside world is asked: longer than a launch takes, and short enough that a crash blocks nobody for long. */
export const RESERVATION_LEASE_MS_MIN = 1_000;
export const RESERVATION_LEASE_MS_DEFAULT = 30_000;
export const RESERVATION_LEASE_MS_MAX = 600_000;
/** Places that one key can have. */
export const RUNNER_SLOTS_MAX = 10_000;
/** Jobs that one reconciliation pass takes. */
export const RECONCILIATION_ROWS_DEFAULT = 100;
export const RECONCILIATION_ROWS_MAX = 500;

/** Outbox rows are spread over this many shards by a stable hash of the partition key; changing it re-maps every key. */
export const OUTBOX_SHARDS = 32;

/** Deleting expired storage: how long one collector has for it, and how often it is tried before an operator must look. */
export const STORAGE_LEASE_MS_MIN = 1_000;
export const STORAGE_LEASE_MS_DEFAULT = 60_000;
export const STORAGE_LEASE_MS_MAX = 3_600_000;
export const STORAGE_EVICTION_ATTEMPTS_MAX = 20;
export const STORAGE_BACKOFF_MS_MIN = 10_000;
export const STORAGE_BACKOFF_MS_MAX = 3_600_000;

/** Calls of one kind that wait in one process to share a statement: a second or two of a busy server's work, then callers are sent away. */
export const COALESCER_QUEUE_CALLS_MAX = 10_000;
export const COALESCER_QUEUE_BYTES_MAX = 64 * 1024 * 1024;
/** What shares one statement: enough that its start no longer counts, short enough to hold its runs' rows for some milliseconds only. */
export const COALESCED_CALLS_MAX = 256;
export const COALESCED_EVENTS_MAX = 1_000;
export const COALESCED_BYTES_MAX = 4 * 1024 * 1024;

/** A hundred years. */
export const RETENTION_DAYS_MAX = 36_500;
/** What one pass of retention removes of one tenant and kind, unless told otherwise. */
export const RETENTION_ROWS_DEFAULT = 100;
export const RETENTION_ROWS_MAX = 1_000;
/** A pass never looks further than this for something to remove: runs that must stay (the last of their session) may be many. */
export const RETENTION_SCAN_ROWS_MAX = 10_000;
/** Events that one transaction removes: some 100 ms, so that nobody who needs the run's row waits for long. */
export const RETENTION_CHUNK_EVENTS = 5_000;
/** How long the right to remove a run is held without being renewed. */
export const RETENTION_LEASE_MS = 60_000;
/** A run that could not be archived is left alone for a while: doubling from a minute to six hours. */
export const RETENTION_BACKOFF_MS_MIN = 60_000;
export const RETENTION_BACKOFF_MS_MAX = 21_600_000;

/** Names of session events with their parts. */
export const SESSION_EVENT_TYPE_CHARS_MAX = 96;
/** A hundred years: whoever never wants an answer to be late. */
export const APPROVAL_TIMEOUT_SECONDS_MAX = 3_155_760_000;
/** Of the JSON array of channel, account and conversation, which is part of keys and cursors. */
export const CHANNEL_ADDRESS_BYTES_MAX = 1000;
/** How long a message that came in, and a delivery that has ended, are kept as rows: a repeat of an older message is a new one. */
export const CHANNEL_ROW_KEPT_MS = 30 * 86_400_000;
/** How long the route of a turn is kept after its end, for an answer that is late. */
export const CHANNEL_ROUTE_KEPT_MS = 86_400_000;
/** A note's path is part of a key: what an index of PostgreSQL takes beside tenant and session. */
export const NOTE_PATH_BYTES_MAX = 1024;
/** Items that the checkpoints of one append carry over: each is a row that is written anew. */
export const CARRIED_ITEMS_MAX = 10_000;
/** A note that grows by appending is bounded: it is read whole. */
export const NOTE_BYTES_MAX = 1024 * 1024;

/** What asking a person waits for, unless told otherwise, and at most: thirty days. */
export const REQUEST_TIMEOUT_SECONDS_DEFAULT = 300;
export const REQUEST_TIMEOUT_SECONDS_MAX = 2_592_000;
/** Open approvals, and open input requests, of one session: the end of a run closes all of them with one append. */
export const OPEN_REQUESTS_MAX = 200;
/** What an approver is shown of a call; the call itself may be larger, and is known by its digest. */
export const ARGUMENTS_SUMMARY_BYTES_MAX = 64 * 1024;
export const PROMPT_CODE_POINTS_MAX = 8_000;
/** A form for people: its schema is compiled by whoever checks an answer. */
export const INPUT_SCHEMA_BYTES_MAX = 16 * 1024;
export const INPUT_SCHEMA_DEPTH_MAX = 16;
/** Sub-schemas with every reference followed, so that a few lines cannot stand for millions of checks. */
export const INPUT_SCHEMA_PARTS_MAX = 250;
export const INPUT_PATTERN_CHARS_MAX = 500;
export const INPUT_VALUE_BYTES_MAX = 64 * 1024;
/** Checking an answer is cut off after so long, whatever the schema's patterns make of it. */
export const INPUT_CHECK_MS_MAX = 100;
/** A time that an appender gives may be so far off the database's. */
export const SESSION_CLOCK_SKEW_MS_MAX = 300_000;
export const SESSION_HEADER_BYTES_MAX = 64 * 1024;
/** Of an import's: a fork has its own id and says where it comes from, beside all of the header that it was made of. */
export const IMPORT_HEADER_BYTES_MAX = SESSION_HEADER_BYTES_MAX + 2 * 1024;
/** The right to write a session's log. */
export const SESSION_LEASE_MS_MIN = 1_000;
export const SESSION_LEASE_MS_DEFAULT = 30_000;
export const SESSION_LEASE_MS_MAX = 600_000;
/** Event types, or families of them, that a tenant lets be appended without a lease. */
export const LEASELESS_TYPES_MAX = 50;
/** Unfinished submissions that one session may have: its workers do not keep up. */
export const OPEN_SUBMISSIONS_MAX = 1_000;
/** Inputs that may wait in one session's inbox, which its snapshot has and each of them writes anew. */
export const INBOX_ENTRIES_MAX = 1_000;
/** A queued turn of a busy session is called when the open turn ends; this is how long it is left alone otherwise. */
export const QUEUED_TURN_RECHECK_MS = 60_000;
/** With the source beside it, and the names around them, it must fit into one event. */
export const SUBMISSION_PAYLOAD_BYTES_MAX = EVENT_BYTES_MAX - 68 * 1024;
export const SUBMISSION_ERROR_CODE_POINTS_MAX = 2_000;
/** Claims of one submission, after which it fails; indexes of the claims say so too. A re-queue gives it as many again. */
export const SUBMISSION_ATTEMPTS_MAX = 10;
/** Pause after a try that failed: doubling from the first to the second. */
export const SUBMISSION_BACKOFF_MS_MIN = 1_000;
export const SUBMISSION_BACKOFF_MS_MAX = 300_000;
/** Submissions that one call claims, renews or ends. */
export const SUBMISSION_BATCH_ROWS_MAX = 100;
/** Due heads that a claim looks at for sessions whose lease is free; where others stand before them, those are passed over for so long. */
export const SUBMISSION_LOOK_HEADS_MAX = 200;
export const SUBMISSION_PASSED_OVER_MS = 1_000;
/** Submissions of an older store that one call brings. */
export const IMPORTED_SUBMISSIONS_MAX = 500;
/** Tasks that one call makes, claims, renews or ends. */
export const QUEUE_BATCH_ROWS_MAX = 100;
export const QUEUE_TASK_PAYLOAD_BYTES_MAX = 1024 * 1024;
/** All payloads of one call that makes tasks; below the HTTP body's bound. */
export const QUEUE_BATCH_BYTES_MAX = 4 * 1024 * 1024;
export const QUEUE_TITLE_CODE_POINTS_MAX = 300;
export const QUEUE_PRIORITY_MAX = 1_000_000;
export const QUEUE_REFERENCES_MAX = 100;
export const QUEUE_LANE_DEFAULT = 'default';
/** Of a lane or a queue: tasks that run at a time. */
export const QUEUE_LIMIT_MAX = 1_000_000;
export const QUEUE_ATTEMPTS_MAX_DEFAULT = 3;
export const QUEUE_ATTEMPTS_MAX = 20;
export const QUEUE_BACKOFF_MS_MIN = 1_000;
export const QUEUE_BACKOFF_MS_MAX = 300_000;
/** A claim that is given back may be put off by its holder, as a task by its creator: up to 30 days, or to a fixed time. */
export const QUEUE_RELEASE_DELAY_MS_MAX = 2_147_483_647;
/** A retry that was reserved and not activated for so long keeps nobody else away. */
export const QUEUE_RESERVATION_MS = 600_000;
/** Tasks in the commander's list. */
export const QUEUE_COMMANDER_ROWS = 20;
/** Ended tasks that a reader has not seen are looked for among so many of the newest changes. */
export const QUEUE_COMMANDER_SCAN_ROWS = 1_000;
/** Rebuilds of views: what one transaction folds, how long the right to rebuild a session is held without progress, and how often one that fails is tried. */
export const REBUILD_PAGE_EVENTS = 500;
export const REBUILD_PAGE_BYTES = 4 * 1024 * 1024;
export const REBUILD_LEASE_MS = 30_000;
export const REBUILD_ATTEMPTS_MAX = 10;
export const REBUILD_BACKOFF_MS_MIN = 1_000;
export const REBUILD_BACKOFF_MS_MAX = 300_000;
/** Rows that one transaction removes when a rebuild is done, of each view. */
export const REBUILD_CHUNK_ROWS = 5_000;
/** What one pass of the background rebuilds, and how many sessions it looks at for stale views of a team. */
export const REBUILD_SESSIONS_DEFAULT = 10;
export const REBUILD_SCAN_ROWS = 1_000;
/** How long is remembered that a session was rebuilt. */
export const REBUILD_REMEMBER_MS = 86_400_000;

/** A deleted session is erased after so long: whoever follows the list of changes sees first that it is gone. */
export const ERASURE_DELAY_MS = 3_600_000;
/** A fork or import that has not gone on for so long has died; what it left is erased. */
export const COPY_ABANDONED_MS = 3_600_000;
/** Rows that one transaction of an erasure removes. */
export const ERASURE_CHUNK_ROWS = 5_000;
export const ERASURE_SESSIONS_DEFAULT = 20;

/** A session that comes as a file: its events, and the bytes of its lines. A larger one is moved by whoever has the database. */
export const IMPORT_EVENTS_MAX = 100_000;
export const IMPORT_BYTES_MAX = 64 * 1024 * 1024;
/** Of one line: an event with all that is around its data. */
export const IMPORT_LINE_BYTES_MAX = EVENT_BYTES_MAX + 16 * 1024;
/** Submissions, approvals and input requests that the copied part of a fork or an import may leave open: the transaction that shows it closes them all. */
export const COPY_OPEN_MAX = 2_000;
/** What one transaction of a copy writes. */
export const COPY_CHUNK_EVENTS = 500;
export const COPY_CHUNK_BYTES = 4 * 1024 * 1024;
