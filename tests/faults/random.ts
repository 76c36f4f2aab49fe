/** A stream of numbers in [0, 1) that a seed repeats (mulberry32). */
export type Random = () => number;

export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

export const between = (random: Random, min: number, max: number): number => Math.round(min + (max - min) * random());

export function pick<T>(random: Random, list: readonly T[]): T {
  const picked = list[Math.floor(random() * list.length)];
  if (picked === undefined) throw new Error('there is nothing to pick from');
  return picked;
}
