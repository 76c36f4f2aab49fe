import {
  freeText,
  newId,
  normalizeJson,
  parseInput,
  PayloadTooLarge,
  redactJson,
  REFERENCE_BYTES_MAX,
  RegisterRunner,
  requireIdentifier,
  utf8Bytes,
  type JsonObject,
  type Runner,
} from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { upsertRunner } from './runner.sql';

/**
 * Registers a runner, or merges what is given into its registration. Times are the server's; metadata is redacted.
 * Locks: new key (runner).   Errors: InvalidRequest, InvalidJson, InvalidIdentifier, PayloadTooLarge (also of what was merged).   Repeat: safe with runnerId.
 */
export async function registerRunner(
  tx: Tx,
  { tenantId, runnerId, runner: input }: { tenantId: string; runnerId?: string | undefined; runner: RegisterRunner },
): Promise<Runner> {
  const runner = parseInput(RegisterRunner, input);
  const id = runnerId === undefined ? newId('runner') : requireIdentifier(runnerId, 'the runner id');
  const metadata = redactJson<JsonObject>(normalizeJson(runner.metadata ?? {}, { bytesMax: REFERENCE_BYTES_MAX }).value);
  const registered = await upsertRunner(tx, tenantId, id, {
    runId: runner.runId ?? null,
    attemptId: runner.attemptId ?? null,
    backendProfile: runner.backendProfile ?? null,
    placement: storableText(runner.placement),
    sourceCommit: storableText(runner.sourceCommit),
    metadata,
  });
  if (utf8Bytes(JSON.stringify(registered.metadata)) > REFERENCE_BYTES_MAX) {
    throw new PayloadTooLarge(`The metadata of runner ${id} would become too large: register less, or under another id.`, {
      bytesMax: REFERENCE_BYTES_MAX,
    });
  }
  return registered;
}

function storableText(text: string | undefined): string | null {
  return text === undefined ? null : freeText(text);
}
