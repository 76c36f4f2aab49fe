import type { Db } from '@runplane/database';
import { webhookDeliveryLog, type Publisher, type Sink } from '@runplane/outbox';
import type { SinkConfig } from './sinks-config';

/** The sinks with their publishers; each client is loaded only where a sink needs it. Nothing connects before there is something to send. */
export function openSinks(db: Db, sinks: readonly SinkConfig[], onError: OnError): Promise<Sink[]> {
  return Promise.all(sinks.map(async (sink) => ({ ...sink, publisher: await openPublisher(db, sink, onError) })));
}

type OnError = (error: unknown, where: string) => void;

async function openPublisher(db: Db, sink: SinkConfig, onError: OnError): Promise<Publisher> {
  if (sink.kind === 'kafka') return (await import('@runplane/outbox/kafka')).openKafkaPublisher(sink.options);
  const { openWebhookPublisher } = await import('@runplane/outbox/webhook');
  const log = webhookDeliveryLog(db, { sink: sink.name, onError: (error) => onError(error, `log of the webhook ${sink.name}`) });
  return openWebhookPublisher(sink.options, { onDeliveries: log });
}
