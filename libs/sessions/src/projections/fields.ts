import { fieldOf, isIdentifier, type JsonObject, type JsonValue } from '@runplane/contracts';

// How folds read data that may be anything: a field of a wrong type is read as one that is absent, so that a fold never throws.

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function textField(data: JsonObject, name: string): string | undefined {
  const value = fieldOf(data, name);
  return typeof value === 'string' ? value : undefined;
}

/** A field that is part of a key: an identifier, or nothing. */
export function identifierField(data: JsonObject, name: string): string | undefined {
  const value = textField(data, name);
  return value !== undefined && isIdentifier(value) ? value : undefined;
}

export function integerField(data: JsonObject, name: string): number | undefined {
  const value = fieldOf(data, name);
  return isInteger(value) ? value : undefined;
}

export function isInteger(value: JsonValue | undefined): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value);
}

/** Absent, or not told as true or false: what is usual. */
export function booleanField(data: JsonObject, name: string, usual: boolean): boolean {
  const value = fieldOf(data, name);
  return typeof value === 'boolean' ? value : usual;
}
