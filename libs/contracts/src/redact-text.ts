import { isSecretName } from './secret-names';

/** Stands in the place of a secret; a text that has it is left as it is, so redacting twice changes nothing. */
export const REDACTED = '[redacted]';

/**
 * Masks credentials in free text: private keys, passwords in URLs, values named like a secret (`password=…`, `"apiKey": "…"` at any
 * level of JSON in strings, `?token=…`, headers, flags), Bearer and Basic credentials, tokens of known shape, and short base64 of text
 * with any of these. Two aims pull against each other; this is where the line is:
 *
 * - A quoted value, and an unquoted one after a bare `=`, is masked whatever it looks like, unless it is a placeholder or a call.
 * - After `: ` or ` = ` an unquoted value made of letters only may be code or prose (`token: string`, `secret = config.secret`): it is
 *   masked at the end of a line after names like `password:`, else left alone.
 * - Base64 is looked into up to 8 KiB of it and only when it decodes to printable ASCII, so images pass untouched.
 *
 * Time is linear in the length: each rule has bounded look-around, or consumes what it has looked at.
 */
export function redactText(text: string): string {
  let redacted = text;
  for (let pass = 0; pass < PASSES_MAX; pass += 1) {
    const before = redacted;
    redacted = redactBase64(redactPlain(before));
    if (redacted === before) break;
  }
  return redacted;
}

// A mask makes a word boundary where a secret was glued to other text: the next pass sees what stands behind it. The second changes
// nothing in texts that people write.
const PASSES_MAX = 5;

function redactPlain(text: string): string {
  return redactSchemes(redactTokens(redactNamedValues(redactKeyDetail(redactUrls(redactPrivateKeys(text))))));
}

// The body ends at the end marker, a quote (a key inside a string) or the next marker; a header alone in code has a quote after it.
const PRIVATE_KEY =
  /-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?=[\s\\])(?:(?!-----)[^"'`])*(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?/g;

function redactPrivateKeys(text: string): string {
  return text.includes('-----BEGIN ') ? text.replace(PRIVATE_KEY, REDACTED) : text;
}

const URL_END = /[\s"'`<>]/g;
const USER_AND_PASSWORD = /([^\s/?#@:[]{0,256}):(?!\d{1,5}(?:[/?#,;)\]]|$))/y;
const TOKEN_AS_USER = /[\w-]{20,}@/y;
const SLACK_HOOK = /(hooks\.slack\.com\/(?:services|workflows|triggers)\/)[\w/]{8,}/g;

/** `scheme://user:password@host` up to the last @ of the word: passwords may hold a raw @ or /. */
function redactUrls(text: string): string {
  let result = '';
  let done = 0;
  let wordEnd = 0;
  let lastAt = -1;
  for (let mark = text.indexOf('://'); mark !== -1; mark = text.indexOf('://', Math.max(mark + 3, done))) {
    const start = mark + 3;
    if (start > wordEnd) {
      URL_END.lastIndex = start;
      wordEnd = URL_END.exec(text)?.index ?? text.length;
      lastAt = start + text.slice(start, wordEnd).lastIndexOf('@'); // below start when there is none
    }
    if (lastAt < start) continue;
    USER_AND_PASSWORD.lastIndex = TOKEN_AS_USER.lastIndex = start;
    const user = USER_AND_PASSWORD.exec(text);
    if (user !== null && USER_AND_PASSWORD.lastIndex < lastAt) {
      result += text.slice(done, USER_AND_PASSWORD.lastIndex) + REDACTED;
      done = lastAt;
    } else if (TOKEN_AS_USER.test(text)) {
      result += text.slice(done, start) + REDACTED;
      done = TOKEN_AS_USER.lastIndex - 1;
    }
  }
  return (result + text.slice(done)).replace(SLACK_HOOK, `$1${REDACTED}`);
}

// PostgreSQL's detail of a broken key: the values belong to the columns in front.
const KEY_DETAIL = /\bKey \(([^\n]{1,300}?)\)=\([^\n]*/g;

function redactKeyDetail(text: string): string {
  return text.replace(KEY_DETAIL, (detail, columns: string) =>
    columns.split(/[^\w-]+/).some(isSecretName) ? `Key (${columns})=(${REDACTED})` : detail,
  );
}

/** Most texts have no such word, and then nobody looks at their names. */
const SECRET_HINT = /pass|pwd|secret|token|credential|auth|cookie|key|jwt|dsn|conn|ur[il]|sig/i;
const NAME = String.raw`(?<![\w-])(?<name>(?:(?:api|access|secret|private|signing|encryption|connection|auth) )?[\w-]{1,128})`;
const NAMED_VALUE = new RegExp(
  String.raw`${NAME}\\{0,8}["'\x60]?\]?(?<before>[ \t]{0,8})(?<sign>=>|:=|[:=])(?![=>:~]|\/\/)(?<after>[ \t]{0,8})|(?<![\w-])(?<flag>--[\w-]{1,128}) +(?!-)`,
  'gi',
);
const UNQUOTED = /(?:[^\s"'`<>,;&)}\]\\]|\\(?!\\{0,8}["'`nrt]))+/y;
const HEADER_LINE = /[^\n"'`\\]+/y;
const SCHEME_AND_VALUE = /(?:bearer|basic|token|digest|negotiate|apikey)[ \t]+[^\s"'`,;\\]+/iy;
const URL_SIGNATURE = /^(?:sig|x-amz-(?:signature|credential)|x-goog-(?:signature|credential))$/i;

/** How a value follows its name. */
interface Place {
  name: string;
  /** A bare `=`, as in queries, environments and flags. */
  tight: boolean;
  /** `name: value`, as in headers and YAML. */
  colon: boolean;
}

function redactNamedValues(text: string): string {
  if (!SECRET_HINT.test(text)) return text;
  let result = '';
  let done = 0;
  const words = new Words(text);
  NAMED_VALUE.lastIndex = 0;
  for (let match = NAMED_VALUE.exec(text); match !== null; match = NAMED_VALUE.exec(text)) {
    const place = placeOf(match);
    const start = NAMED_VALUE.lastIndex;
    const inQuery = '?&'.includes(text[match.index - 1] ?? ' ') && URL_SIGNATURE.test(place.name);
    if (!inQuery && !isSecretName(place.name)) continue;
    const secret = text.startsWith(REDACTED, start) ? undefined : findSecret(text, start, place, words);
    if (secret === undefined) continue;
    result += text.slice(done, secret.from) + REDACTED;
    done = NAMED_VALUE.lastIndex = secret.to;
  }
  return result + text.slice(done);
}

function placeOf(match: RegExpExecArray): Place {
  const { name, flag, before, sign, after } = match.groups as Record<string, string | undefined>;
  return {
    name: name ?? flag ?? '',
    tight: sign === '=' && before === '' && after === '',
    colon: sign === ':' && before === '',
  };
}

interface Span {
  from: number;
  to: number;
}

function findSecret(text: string, start: number, place: Place, words: Words): Span | undefined {
  const quoted = findQuoted(text, start);
  if (quoted !== undefined) return isPlaceholder(text, quoted) ? undefined : quoted;
  const header = place.colon
    ? (findSpan(SCHEME_AND_VALUE, text, start) ?? (/cookie$/i.test(place.name) ? findSpan(HEADER_LINE, text, start) : undefined))
    : undefined;
  if (header !== undefined) return header;
  const plain = words.from(start);
  if (plain === undefined || isPlaceholder(text, plain)) return undefined;
  return isValue(text, plain, place) && !words.hasMask(plain) ? plain : undefined;
}

/**
 * Unquoted words and the masks in them. A word may hold many names, as `a(token=b(token=c(`: its end and the next mask are the same for all
 * of them, and are looked for once.
 */
class Words {
  readonly #text: string;
  #end = 0;
  #mask = -1;

  constructor(text: string) {
    this.#text = text;
  }

  /** What is left of the word at a place; asked for rising places. */
  from(start: number): Span | undefined {
    if (start >= this.#end) this.#end = findSpan(UNQUOTED, this.#text, start)?.to ?? start;
    return start < this.#end ? { from: start, to: this.#end } : undefined;
  }

  hasMask({ from, to }: Span): boolean {
    if (this.#mask < from) this.#mask = indexOrEnd(this.#text, REDACTED_OPEN, from);
    return this.#mask < to;
  }
}

function indexOrEnd(text: string, part: string, from: number): number {
  const index = text.indexOf(part, from);
  return index === -1 ? text.length : index;
}

function findSpan(pattern: RegExp, text: string, start: number): Span | undefined {
  pattern.lastIndex = start;
  return pattern.test(text) ? { from: start, to: pattern.lastIndex } : undefined;
}

const OPENING_QUOTE = /(\\{0,8})(["'`])/y;

/** The inside of a quoted value, whose quotes may be escaped (JSON in strings); one that never closes ends with its line. */
function findQuoted(text: string, start: number): Span | undefined {
  OPENING_QUOTE.lastIndex = start;
  const opening = OPENING_QUOTE.exec(text);
  if (opening === null) return undefined;
  const level = opening[1]?.length ?? 0;
  const from = OPENING_QUOTE.lastIndex;
  let backslashes = 0;
  for (let index = from; index < text.length; index += 1) {
    const unit = text[index];
    if (unit === '\n') return { from, to: index };
    if (unit === opening[2] && (level === 0 ? backslashes % 2 === 0 : backslashes <= level))
      return { from, to: index - (level === 0 ? 0 : backslashes) };
    backslashes = unit === '\\' ? backslashes + 1 : 0;
  }
  return { from, to: text.length };
}

const PLACEHOLDER = /^(?:|\*+|\.{3}|…|true|false|null|undefined|none|nil|\$\{?[\w.]*\}?|\{\{[^}]*\}?\}?|%[\w]+%?|<[^>]*>|\[redacted\])$/i;

function isPlaceholder(text: string, span: Span): boolean {
  return span.to - span.from <= 64 && PLACEHOLDER.test(text.slice(span.from, span.to));
}

// As far as an unquoted value reaches into a mask.
const REDACTED_OPEN = REDACTED.slice(0, -1);
const CALL = /^[A-Za-z_$][\w$.]{0,128}[([]/;
const LETTERS_ONLY = /^[A-Za-z_$.|!?]+$/;
const TYPE_NAME =
  /^(?:string|number|boolean|unknown|any|str|int|bytes|text|required|optional|missing|invalid|expired|yes|no|never|object)$/i;

/** Tells a value from code and prose; see redactText for the rule. */
function isValue(text: string, span: Span, place: Place): boolean {
  const value = text.slice(span.from, span.to);
  if (CALL.test(value)) return false;
  if (place.tight || !LETTERS_ONLY.test(value)) return true;
  const endsLine = span.to === text.length || text[span.to] === '\n' || text[span.to] === '\r';
  return place.colon && endsLine && !TYPE_NAME.test(value) && !/token$/i.test(place.name);
}

const BEARER = /\b(bearer|negotiate)([ \t]{1,8}|%20)([\w.~+/=-]{6,})/gi;
const BASIC = /\b(basic)([ \t]{1,8}|%20)([A-Za-z0-9+/_-]{8,}={0,2})/gi;
/** Tells a credential from prose like `Bearer authentication`. */
const RANDOM_LOOK = /\d|[a-z][A-Z]|[A-Z]{4}|.{24}/;

function redactSchemes(text: string): string {
  return text
    .replace(BEARER, (all, scheme: string, gap: string, value: string) => (RANDOM_LOOK.test(value) ? `${scheme}${gap}${REDACTED}` : all))
    .replace(BASIC, (all, scheme: string, gap: string, value: string) =>
      decodedText(value) === undefined ? all : `${scheme}${gap}${REDACTED}`,
    );
}

// Model providers, Stripe, GitHub, GitLab, AWS, Slack, Google, npm, Hugging Face, PyPI, DigitalOcean, SendGrid, JSON web tokens.
const TOKEN = new RegExp(
  String.raw`(?<![A-Za-z0-9])(?:${[
    String.raw`sk-[\w-]{12,}`,
    String.raw`(?:[sr]k_(?:live|test)|whsec)_\w{10,}`,
    String.raw`gh[opsur]_[A-Za-z0-9]{16,}`,
    String.raw`github_pat_\w{20,}`,
    String.raw`gl[a-z]{2,4}-[\w-]{16,}`,
    String.raw`(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])`,
    String.raw`xox[a-z]-[\w-]{10,}`,
    String.raw`xapp-[\w-]{10,}`,
    String.raw`AIza[\w-]{35,}`,
    String.raw`ya29\.[\w-]{20,}`,
    String.raw`rp_[0-9a-f]{32}_[\w-]{43}`, // our own API keys
    String.raw`npm_[A-Za-z0-9]{30,}`,
    String.raw`hf_[A-Za-z0-9]{20,}`,
    String.raw`pypi-[\w-]{20,}`,
    String.raw`do[opr]_v1_[A-Za-z0-9]{40,}`,
    String.raw`SG\.[\w-]{16,64}\.[\w-]{16,}`,
    String.raw`(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*`,
  ].join('|')})`,
  'g',
);

function redactTokens(text: string): string {
  return text.replace(TOKEN, (token) => (/\d|[A-Z]{2}|[a-z][A-Z]/.test(token) ? REDACTED : token));
}

const BASE64_WORD = /(?<![\w+/=-])[\w+/-]{16,8192}={0,2}(?![\w+/=-])/g;

function redactBase64(text: string): string {
  return text.replace(BASE64_WORD, (word) => {
    const decoded = decodedText(word);
    return decoded !== undefined && redactPlain(decoded) !== decoded ? REDACTED : word;
  });
}

/** The text behind base64, when it is printable ASCII. */
function decodedText(base64: string): string | undefined {
  const decoded = Buffer.from(base64, 'base64').toString('latin1');
  return /^[\t\n\r\x20-\x7e]+$/.test(decoded) ? decoded : undefined;
}
