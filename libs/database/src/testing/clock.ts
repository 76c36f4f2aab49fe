/** The URL by which every connection finds the database's clock standing still at a moment: what a test says about time holds on a machine that stalls, too. */
export function withClockAt(url: string, at: Date): string {
  const stopped = new URL(url);
  stopped.searchParams.set('options', `-c runplane.fake_now=${at.toISOString()}`);
  return stopped.toString();
}
