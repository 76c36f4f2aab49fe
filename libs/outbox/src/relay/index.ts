export { listBlockedKeys, retryBlockedKeys, skipBlockedEvent } from './blocked-keys';
export { disableSink, enableSink, republish } from './change-sink';
export {
  dropParkedEvent,
  listParkedEvents,
  readParkedEvent,
  type ParkedEvent,
  type ParkedEventKey,
  type UndeliveredEvent,
} from './drop-parked-event';
export { explainSink } from './explain-relay';
export { registerSinks } from './register-sinks';
export { startRelay, type Relay, type RelayOptions, type SinkStats } from './relay';
export { createRelayControl } from './relay-control';
export { SinkFilter, SinkLimits, SinkSettings, type Sink } from './sink';
export { getRelayStatus, getSinkStatus } from './status';
