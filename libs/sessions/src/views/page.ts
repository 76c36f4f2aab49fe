/** Rows that were read with one more than the page may show: it tells that there are more. */
export function cutPage<Row>(found: readonly Row[], limit: number): { shown: readonly Row[]; last: Row | undefined } {
  const shown = found.slice(0, limit);
  return { shown, last: found.length > limit ? shown.at(-1) : undefined };
}
