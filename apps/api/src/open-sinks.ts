import type { Publisher, Sink } from '@runplane/outbox';
import type { SinkConfig } from './sinks-config';

/** The sinks with their publishers; each client is loaded only where a sink needs it. Nothing connects before there is something to send. */
export function openSinks(sinks: readonly SinkConfig[]): Promise<Sink[]> {
  return Promise.all(sinks.map(async (sink) => ({ ...sink, publisher: await openPublisher(sink) })));
}

async function openPublisher(sink: SinkConfig): Promise<Publisher> {
  if (sink.kind === 'kafka') return (await import('@runplane/outbox/kafka')).openKafkaPublisher(sink.options);
  return (await import('@runplane/outbox/webhook')).openWebhookPublisher(sink.options);
}
