import { z } from 'zod';
import type { JsonObject, JsonValue } from './json';

// z.json() writes a $ref that resolves nowhere in an OpenAPI document, and z.record() copies values in a way that loses own __proto__
// keys; these pass the parsed value through as it is. normalizeJson, called at each library's door, judges the content.
export const Json = z
  .any()
  .refine((value) => value !== undefined, 'expected a JSON value')
  .meta({ id: 'Json', description: 'Any JSON value' }) as unknown as z.ZodType<JsonValue, JsonValue>;

export const JsonRecord = z
  .any()
  .refine((value) => typeof value === 'object' && value !== null && !Array.isArray(value), 'expected a JSON object')
  .meta({ id: 'JsonObject', type: 'object', additionalProperties: true, description: 'Any JSON object' }) as unknown as z.ZodType<
  JsonObject,
  JsonObject
>;
