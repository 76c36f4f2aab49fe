import {
  BackendNotFound,
  BackendRegistration,
  JsonRecord,
  normalizeJson,
  parseInput,
  redactJson,
  REFERENCE_BYTES_MAX,
  requireIdentifier,
  type Backend,
  type BackendProfile,
  type JsonObject,
} from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { findBackend, listBackendRows, upsertBackend, upsertBackends, writeBackendHealth } from './backend.sql';

// The registry of backend profiles: what runs may name, as data of the operator. How a profile is launched stands in the launcher's own
// configuration; a profile that is here and there is not is shown and cannot be launched, one that is there and not here can.

/** All backends, by profile; capabilities are those stored, over the defaults of their kind. Source: the original's backends(). */
export async function listBackends(at: At): Promise<{ backends: Backend[] }> {
  return { backends: await listBackendRows(executorOf(at)) };
}

/** Reads a backend. Errors: BackendNotFound. */
export async function getBackend(at: At, { profile }: { profile: string }): Promise<Backend> {
  return (await findBackend(executorOf(at), profile)) ?? fail(profile);
}

/**
 * Registers a backend, or replaces those of its capabilities, capacity and health that are given. Stored redacted.
 * Locks: new key (backend).   Errors: InvalidRequest, InvalidIdentifier, InvalidJson, PayloadTooLarge.   Repeat: safe.
 */
export async function putBackend(at: At, { profile, backend }: { profile: string; backend: BackendRegistration }): Promise<Backend> {
  const { capabilities, capacity, health } = parseInput(BackendRegistration, backend);
  return upsertBackend(at, requireIdentifier(profile, 'the profile'), {
    capabilities: storable(capabilities),
    capacity: storable(capacity as JsonObject | undefined),
    health: storable(health),
  });
}

/** Replaces what is known of a backend's health. Errors: BackendNotFound, InvalidRequest, InvalidJson, PayloadTooLarge. */
export async function updateBackendHealth(at: At, { profile, health }: { profile: string; health: JsonObject }): Promise<Backend> {
  return (await writeBackendHealth(at, profile, storable(parseInput(JsonRecord, health)) ?? {})) ?? fail(profile);
}

/**
 * Puts the profiles of the operator's file into the registry, at the start of a process. What the file says wins over what is stored;
 * capacity and health that it does not mention stay, and so do profiles that it does not have: they may be another process's.
 */
export async function registerBackends(at: At, profiles: Readonly<Record<string, BackendProfile>>): Promise<{ changed: number }> {
  return upsertBackends(
    at,
    Object.entries(profiles).map(([profile, { kind, launcher, capabilities, capacity }]) => ({
      profile,
      capabilities: storable({ kind, launcher, ...capabilities }) ?? {},
      capacity: storable(capacity as JsonObject | undefined),
    })),
  );
}

function storable(json: JsonObject): JsonObject;
function storable(json: JsonObject | undefined): JsonObject | null;
function storable(json: JsonObject | undefined): JsonObject | null {
  return json === undefined ? null : redactJson<JsonObject>(normalizeJson(json, { bytesMax: REFERENCE_BYTES_MAX }).value);
}

function fail(profile: string): never {
  throw new BackendNotFound(`There is no backend ${profile} in the registry.`, { profile });
}
