// A door of its own, as Kafka's.

export { WebhookOptions } from './webhook-options';
export { openWebhookPublisher, type WebhookHooks } from './webhook-publisher';
