import type { JsonObject } from '@runplane/contracts';

/** What a runner's program says: about 200 bytes of JSON, the same for every case. */
export const payloadOf = (commandId: string): JsonObject => ({
  text: 'The migration adds a partial index for open turns; the existing one stays until the next release has run for a day.',
  commandId,
});
