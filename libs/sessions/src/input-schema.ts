import {
  INPUT_CHECK_MS_MAX,
  INPUT_PATTERN_CHARS_MAX,
  INPUT_SCHEMA_BYTES_MAX,
  INPUT_SCHEMA_DEPTH_MAX,
  INPUT_SCHEMA_PARTS_MAX,
  INPUT_VALUE_BYTES_MAX,
  InvalidInputSchema,
  InvalidInputValue,
  isPlainObject,
  PayloadTooLarge,
  utf8Bytes,
  type JsonObject,
  type JsonValue,
} from '@runplane/contracts';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020';
import { createContext, Script } from 'node:vm';

// Checks the answers of people against the JSON Schema that they were asked with. The schema comes from outside, and ajv makes code of it:
//
// - before ajv sees it, its size, depth and number of parts are bounded, with every reference followed, so that a few lines cannot stand for
//   millions of checks. References stay inside it and lead in no circle; nothing is fetched, and keywords that name schemas are refused.
// - checking runs under a clock that stops JavaScript wherever it is, in a regular expression that goes back for ever too.
//
// `format` is an annotation, as 2020-12 has it.

/** Errors: InvalidInputSchema for what is no JSON Schema (2020-12), or one that is not checked here. */
export function requireInputSchema(schema: JsonValue): void {
  compiled(schema);
}

/** Errors: InvalidInputValue for an answer that does not fit, with the place and never the value; PayloadTooLarge. */
export function requireFittingValue(schema: JsonValue, value: JsonValue): void {
  if (utf8Bytes(JSON.stringify(value)) > INPUT_VALUE_BYTES_MAX) {
    throw new PayloadTooLarge(`An answer has at most ${INPUT_VALUE_BYTES_MAX} bytes.`, { bytesMax: INPUT_VALUE_BYTES_MAX });
  }
  const check = compiled(schema);
  let outcome = underClock(() => check(value));
  // The clock goes on while other processes have the CPU: an answer is not refused because the machine was busy for a moment.
  if (outcome === 'stopped') outcome = underClock(() => check(value));
  if (outcome === true) return;
  const [error] = outcome === false ? (check.errors ?? []) : [];
  const issue =
    outcome === 'stopped'
      ? { path: '', message: `checking it takes longer than ${INPUT_CHECK_MS_MAX} ms` }
      : { path: error?.instancePath ?? '', message: error?.message ?? 'does not fit' };
  throw new InvalidInputValue(`The answer does not fit its schema: ${issue.path === '' ? 'it' : issue.path} ${issue.message}.`, {
    issues: [issue],
  });
}

const ajv = new Ajv2020({ strict: false, validateFormats: false, allErrors: false, addUsedSchema: false, logger: false });

/** Compiled schemas, the last used last: of one request, its answer and the repeats of both. */
const known = new Map<string, ValidateFunction>();
const KNOWN_MAX = 100;

function compiled(schema: JsonValue): ValidateFunction {
  const text = JSON.stringify(schema);
  const check = known.get(text) ?? compile(schema, text);
  known.delete(text);
  known.set(text, check);
  const [oldest] = known.keys();
  if (known.size > KNOWN_MAX && oldest !== undefined) known.delete(oldest);
  return check;
}

function compile(given: JsonValue, text: string): ValidateFunction {
  if (utf8Bytes(text) > INPUT_SCHEMA_BYTES_MAX) throw invalid(`it has more than ${INPUT_SCHEMA_BYTES_MAX} bytes`);
  new SchemaWalk(given).visit(given, 0);
  refuseNames(given);
  const { $schema: _, ...schema } = given as JsonObject; // what the walk has gone over
  try {
    return ajv.compile(schema); // not under the clock: stopped in its middle, ajv is broken for every schema to come
  } catch (error) {
    throw invalid(error instanceof Error ? error.message : String(error));
  } finally {
    ajv.removeSchema(schema); // it would keep every schema that was ever asked with
  }
}

const invalid = (reason: string): InvalidInputSchema =>
  new InvalidInputSchema(`The schema for the answer cannot be used: ${reason}.`, { reason });

const ONE = ['items', 'contains', 'additionalProperties', 'propertyNames', 'not', 'if', 'then', 'else', 'unevaluatedItems', 'unevaluatedProperties'] as const; // prettier-ignore
const LISTS = ['allOf', 'anyOf', 'oneOf', 'prefixItems'] as const;
const MAPS = ['properties', 'patternProperties', 'dependentSchemas', 'dependencies'] as const;
const REFUSED = ['$id', 'id', '$anchor', '$dynamicRef', '$dynamicAnchor', '$recursiveRef', '$recursiveAnchor', '$async', '$vocabulary'] as const; // prettier-ignore
/** ajv keeps these of every object in a schema, also of one that nothing refers to, and for good. */
const NAMES = ['$id', '$anchor', '$dynamicAnchor'] as const;
const DIALECTS = /^https?:\/\/json-schema\.org\/(draft\/2020-12|draft\/2019-09|draft-07)\/schema#?$/;

/** Goes over the parts of a schema as a check would: a part that is referred to counts where it is used. */
class SchemaWalk {
  private readonly root: object;
  /** References that lead to where the walk is. */
  private readonly within = new Set<string>();
  private parts = 0;

  constructor(root: unknown) {
    if (!isPlainObject(root)) throw invalid('it is no object');
    const dialect = root['$schema'];
    if (dialect !== undefined && !(typeof dialect === 'string' && DIALECTS.test(dialect))) throw invalid('its $schema is not known');
    this.root = root;
  }

  visit(schema: unknown, depth: number): void {
    this.parts += 1;
    if (this.parts > INPUT_SCHEMA_PARTS_MAX) throw invalid(`it has more than ${INPUT_SCHEMA_PARTS_MAX} parts, references followed`);
    if (depth > INPUT_SCHEMA_DEPTH_MAX) throw invalid(`it is nested deeper than ${INPUT_SCHEMA_DEPTH_MAX} levels`);
    if (!isPlainObject(schema)) return; // true, false, or what ajv refuses
    const refused = REFUSED.find((keyword) => Object.hasOwn(schema, keyword));
    if (refused !== undefined) throw invalid(`${refused} is not supported`);
    this.pattern(schema['pattern']);
    for (const pattern of Object.keys(isPlainObject(schema['patternProperties']) ? schema['patternProperties'] : {})) this.pattern(pattern);
    for (const part of partsOf(schema)) this.visit(part, depth + 1);
    if (Object.hasOwn(schema, '$ref')) this.follow(schema['$ref'], depth);
  }

  private follow(reference: unknown, depth: number): void {
    if (typeof reference !== 'string' || !/^#(\/|$)/.test(reference)) throw invalid('a $ref leads out of it');
    if (this.within.has(reference)) throw invalid(`${reference} leads to itself`);
    this.within.add(reference);
    this.visit(this.resolve(reference), depth + 1);
    this.within.delete(reference);
  }

  private resolve(reference: string): unknown {
    let at: unknown = this.root;
    for (const segment of reference.split('/').slice(1)) {
      const name = decoded(segment).replaceAll('~1', '/').replaceAll('~0', '~');
      if (typeof at !== 'object' || at === null || !Object.hasOwn(at, name)) throw invalid(`${reference} leads nowhere`);
      at = (at as Record<string, unknown>)[name];
    }
    return at;
  }

  private pattern(pattern: unknown): void {
    if (pattern === undefined) return;
    if (typeof pattern !== 'string' || pattern.length > INPUT_PATTERN_CHARS_MAX)
      throw invalid(`a pattern has more than ${INPUT_PATTERN_CHARS_MAX} characters`);
    try {
      new RegExp(pattern, 'u');
    } catch {
      throw invalid('a pattern is no regular expression');
    }
  }
}

/** Wherever they stand. A property may be called like one of them: what it holds is a schema, and no text. */
function refuseNames(value: unknown): void {
  if (typeof value !== 'object' || value === null) return;
  for (const [key, part] of Object.entries(value)) {
    if (typeof part === 'string' && NAMES.some((name) => name === key)) throw invalid(`${key} is not supported`);
    refuseNames(part);
  }
}

function partsOf(schema: Record<string, unknown>): unknown[] {
  const lists = LISTS.map((keyword) => schema[keyword]).filter((list): list is unknown[] => Array.isArray(list));
  const maps = MAPS.map((keyword) => schema[keyword]).filter((map) => isPlainObject(map));
  return [
    ...ONE.flatMap((keyword) => (schema[keyword] === undefined ? [] : [schema[keyword]])),
    ...lists.flat(),
    ...maps.flatMap((map) => Object.values(map)),
  ];
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

// The clock of node:vm ends whatever the script calls, and stands outside of it. One context serves all: calls are synchronous.
const clocked: { work?: (() => unknown) | undefined } = createContext({});
const script = new Script('work()');

function underClock<T>(work: () => T): T | 'stopped' {
  clocked.work = work;
  try {
    return script.runInContext(clocked, { timeout: INPUT_CHECK_MS_MAX }) as T;
  } catch (error) {
    if ((error as { code?: unknown }).code === 'ERR_SCRIPT_EXECUTION_TIMEOUT') return 'stopped';
    throw error;
  } finally {
    clocked.work = undefined;
  }
}
