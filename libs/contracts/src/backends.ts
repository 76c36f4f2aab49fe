import { z } from 'zod';
import { RUNNER_SLOTS_MAX } from './limits';
import type { JsonObject } from './json';
import { Json, JsonRecord } from './wire-json';

const time = z.iso.datetime();

/** How much of a backend there may be. Other fields are the operator's own and shown as they are. */
export const BackendCapacity = z
  .object({
    maxRunners: z
      .int()
      .min(0)
      .max(RUNNER_SLOTS_MAX)
      .optional()
      .meta({ description: 'Runners at a time, over all tenants and processes; 0 launches none; absent: no limit' }),
  })
  .catchall(Json)
  .meta({ id: 'BackendCapacity' });
export type BackendCapacity = z.infer<typeof BackendCapacity>;

/** What a backend profile says of itself: shown by the registry, kept to by the dispatcher. */
export const BackendRegistration = z
  .strictObject({
    capabilities: JsonRecord.optional().meta({ description: 'What the program can do; over what every program of its kind can' }),
    capacity: BackendCapacity.optional(),
    health: JsonRecord.optional().meta({ description: 'How it is; `status` is shown first' }),
  })
  .meta({ id: 'BackendRegistration' });
export type BackendRegistration = z.infer<typeof BackendRegistration>;

export const Backend = z
  .object({ profile: z.string(), capabilities: JsonRecord, capacity: BackendCapacity, health: JsonRecord, updatedAt: time })
  .meta({ id: 'Backend' });
export type Backend = z.infer<typeof Backend>;
export const BackendList = z.object({ backends: z.array(Backend) }).meta({ id: 'BackendList' });
export type BackendList = z.infer<typeof BackendList>;

/** What every program of a kind can do, unless its profile says otherwise. */
const PROGRAM_CAPABILITIES: Readonly<Record<string, JsonObject>> = {
  process: { protocol: 'runplane-json-lines', transport: 'stdio', cancel: true, steers: true, toolCalls: true, usage: true },
};

/** The stored capabilities over the defaults of their kind, key by key at the top level. */
export function mergeBackendCapability(stored: JsonObject): JsonObject {
  const { kind } = stored;
  const defaults = typeof kind === 'string' && Object.hasOwn(PROGRAM_CAPABILITIES, kind) ? PROGRAM_CAPABILITIES[kind] : undefined;
  return { ...defaults, ...stored };
}
