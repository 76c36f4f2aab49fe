export { createMemorySink, type CallFault, type MemorySink, type MemorySinkOptions } from './memory-sink';
export { appendEvents, type Appended } from './append-events';
export { relayPass } from '../relay/pass';
export { keepShards } from '../relay/shard.sql';
export { aSinkByHand, type SinkByHand } from './sink-by-hand';
