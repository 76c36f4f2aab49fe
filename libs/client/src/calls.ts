import type { z } from 'zod';
import type { Call, CallOptions, Transport } from './transport';

/** The shapes of calls that nearly all methods have: each can be repeated safely. */
export function callsOf(transport: Transport) {
  const call: Transport['call'] = (request, o) => transport.call(request, o);
  const get = <T>(path: string, answer: z.ZodType<T>, query: NonNullable<Call<T>['query']>, o?: CallOptions): Promise<T> => {
    const waitSeconds = typeof query['wait'] === 'number' ? query['wait'] : undefined;
    return call({ method: 'GET', path, query, answer, repeatable: true, waitSeconds }, o);
  };
  const post = <T>(path: string, body: unknown, answer: z.ZodType<T>, o?: CallOptions, idempotencyKey?: string): Promise<T> =>
    call({ method: 'POST', path, body, answer, repeatable: true, idempotencyKey }, o);
  const put = <T>(path: string, body: unknown, answer: z.ZodType<T>, o?: CallOptions): Promise<T> =>
    call({ method: 'PUT', path, body, answer, repeatable: true }, o);
  return { call, get, post, put };
}
