/**
 * A time as the store before this one wrote it: UTC with the offset `+00:00`, no fraction where there are no milliseconds, else six digits.
 * For whoever compares with what it has written; on the wire of this store times are RFC 3339 with milliseconds and `Z`.
 * Errors: RangeError, for a year past 9999.
 */
export function originalTime(milliseconds: number): string {
  const text = new Date(milliseconds).toISOString();
  if (!/^\d{4}-/.test(text)) throw new RangeError(`${milliseconds} ms is a time whose year has not four digits`);
  return text.replace(/\.(\d{3})Z$/, (_, fraction: string) => (fraction === '000' ? '+00:00' : `.${fraction}000+00:00`));
}
