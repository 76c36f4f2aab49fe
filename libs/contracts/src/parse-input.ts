import type { z } from 'zod';
import { InvalidRequest } from './errors';

/**
 * Checks an operation's input at the library's door, with defaults filled in. Errors: InvalidRequest, which names every path that is wrong
 * and never repeats a value: it may be a secret.
 */
export function parseInput<Schema extends z.ZodType>(schema: Schema, input: unknown): z.output<Schema> {
  const parsed = schema.safeParse(input);
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.map(({ path, message }) => ({ path: path.map(String).join('.'), message }));
  const [first] = issues;
  throw new InvalidRequest(`The input is not valid${first === undefined ? '' : `: ${first.path || 'value'}: ${first.message}`}.`, {
    issues,
  });
}
