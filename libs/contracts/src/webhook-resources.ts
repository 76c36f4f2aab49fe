import { z } from 'zod';

export const DELIVERY_OUTCOMES = ['sent', 'refused', 'failed'] as const;

/** A webhook's tries are kept so long. */
export const WEBHOOK_DELIVERIES_KEPT_MS = 7 * 86_400_000;

export const WebhookDelivery = z
  .strictObject({
    id: z.string(),
    tenantId: z.string(),
    key: z.string().meta({ description: 'Of the order: <tenant>/<session or run>' }),
    stream: z.enum(['run', 'session']),
    streamId: z.string(),
    sequence: z.int(),
    type: z.string(),
    eventId: z.string().meta({ description: 'webhook-id of the message' }),
    outcome: z.enum(DELIVERY_OUTCOMES).meta({ description: 'refused: of this event; failed: of the endpoint' }),
    httpStatus: z.int().nullable().meta({ description: 'Null: there was no answer' }),
    error: z.string().nullable(),
    durationMs: z.int(),
    triedAt: z.string(),
  })
  .meta({ id: 'WebhookDelivery' });
export type WebhookDelivery = z.infer<typeof WebhookDelivery>;

export const WebhookDeliveryPage = z
  .strictObject({
    deliveries: z.array(WebhookDelivery),
    cursor: z.string().nullable().meta({ description: 'Of the next page, with older ones; null at the end' }),
  })
  .meta({ id: 'WebhookDeliveryPage' });
export type WebhookDeliveryPage = z.infer<typeof WebhookDeliveryPage>;
