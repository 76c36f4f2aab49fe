import { openDbos } from './dbos';
import { openGraphileWorker } from './graphile-worker';
import { openOurs } from './ours';
import { openPgBoss } from './pg-boss';
import type { PeerSetting, QueuePeer, Work } from './queue-peer';

export const PEERS: Readonly<Record<string, (setting: PeerSetting) => Promise<QueuePeer>>> = {
  ours: openOurs,
  'ours, all lanes': (setting) => openOurs(setting, 'queue'),
  'pg-boss': openPgBoss,
  'graphile-worker': openGraphileWorker,
  dbos: openDbos,
};

/** From the benchmark to the process of a peer; each is answered once. */
export type Order = { readonly step: 'enqueue' | 'workOff'; readonly work: Work } | { readonly step: 'close' };
export type Answer = { readonly description: string } | { readonly ms: number } | { readonly error: string };

/** The process of one peer: opens it, tells what it is, and does what it is told. Fails when the database does not show that it was done. */
async function serve(name: string, setting: PeerSetting): Promise<void> {
  const open = PEERS[name];
  if (open === undefined) throw new Error(`there is no peer ${name}`);
  const peer = await open(setting);
  process.on('message', (order: Order) => void obey(peer, order).then(answer, fail));
  answer({ description: `node ${process.version}, ${peer.description}` });
}

async function obey(peer: QueuePeer, order: Order): Promise<Answer> {
  const start = performance.now();
  if (order.step === 'close') {
    await peer.close();
    process.disconnect();
    return { ms: 0 };
  }
  const { step, work } = order;
  const measured = step === 'enqueue' ? await peer.enqueue(work) : await peer.workOff(work);
  const ms = measured ?? performance.now() - start;
  const [left, expected] = [await peer.waiting(), step === 'enqueue' ? work.jobs : 0];
  if (left !== expected) throw new Error(`after ${step} of ${work.jobs} jobs ${left} are waiting, not ${expected}`);
  return { ms };
}

function answer(what: Answer): void {
  if (process.connected) process.send?.(what);
}

function fail(error: unknown): void {
  answer({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) });
}

if (require.main === module) {
  const [name = '', url = '', callersMax = ''] = process.argv.slice(2);
  serve(name, { url, callersMax: Number(callersMax) }).catch(fail);
}
