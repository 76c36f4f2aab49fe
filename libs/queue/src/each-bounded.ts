/** Does so many at a time and no more; the results are in the order of what was given. The first error ends it, once what is under way has ended. */
export async function eachBounded<Given, Result>(
  given: readonly Given[],
  atATime: number,
  work: (one: Given) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = [];
  const left = given.entries();
  const worker = async (): Promise<void> => {
    for (const [place, one] of left) results[place] = await work(one);
  };
  const ends = await Promise.allSettled(Array.from({ length: Math.min(atATime, given.length) }, worker));
  for (const end of ends) if (end.status === 'rejected') throw end.reason;
  return results;
}
