/** Free text on its way into the store: what PostgreSQL cannot keep is repaired, lengths count code points, sizes count bytes of UTF-8. */

// With the u flag \p{Cs} matches lone surrogates only: the halves of a pair are one code point, so valid emoji stay as they are.
const UNSTORABLE = /[\0\p{Cs}]/gu;

/** Replaces NUL and lone surrogates by U+FFFD; every other text comes back byte-identical (no Unicode normalisation). */
export function repairText(text: string): string {
  return text.replace(UNSTORABLE, '\uFFFD');
}

/** True when repairText would not change the text. */
export function isStorableText(text: string): boolean {
  return text.search(UNSTORABLE) === -1;
}

/** At most `codePointsMax` code points; a cut text ends in `…`, which counts. */
export function cutText(text: string, codePointsMax: number): string {
  if (text.length <= codePointsMax) return text; // a code point is one or two units
  let end = 0;
  let kept = 0;
  let units = 0;
  for (const codePoint of text) {
    kept += 1;
    if (kept > codePointsMax) return codePointsMax === 0 ? '' : `${text.slice(0, end)}…`;
    units += codePoint.length;
    if (kept < codePointsMax) end = units;
  }
  return text;
}

/** Size in bytes of UTF-8. */
export function utf8Bytes(text: string): number {
  return Buffer.byteLength(text, 'utf8');
}
