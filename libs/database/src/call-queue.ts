// Which calls go together, decided from the calls and from nothing else: no clock, no statement, no promise. Tables of cases:
// call-queue.spec.ts.
//
// Calls of one lane (of one run) keep their order: they wait in one line, and while one of them is under way no other one is taken. A lane
// that others have locked is tried together with the rest `TRIES_TOGETHER` times; then its first call goes alone and waits for the lock, so
// that nobody else waits with it.

/** What the queue knows of a call. */
export interface QueuedCall {
  /** Calls of one lane are carried out in the order of their arrival. */
  readonly lane: string;
  /** Of calls of one lane with the same word a batch takes one; undefined: any number. */
  readonly single: string | undefined;
  /** True when no call of its lane may go behind it in the same batch: it may need another look, and they keep their order. */
  readonly last: boolean;
  readonly rows: number;
  readonly bytes: number;
}

export interface Bounds {
  readonly callsMax: number;
  readonly bytesMax: number;
}

export interface BatchBounds extends Bounds {
  readonly rowsMax: number;
}

const TRIES_TOGETHER = 2;

const BATCHES_MAX = 2;
/** The start of a statement and its commit cost as much as about so many rows. */
const ROWS_OF_A_BATCH = 16;

/**
 * Into how many batches that are under way at a time so many rows are worth being parted. A second one is sent while the server works on the
 * first; of few rows two would cost more than the wait for one (measured: bench/results.md), and beside a large one a small call need not wait.
 */
export function batchesFor(rows: number): number {
  return Math.min(Math.max(Math.floor(rows / ROWS_OF_A_BATCH), 1), BATCHES_MAX);
}

interface Lane<Call> {
  readonly name: string;
  /** In order of arrival; without those under way. */
  waiting: Call[];
  underWay: boolean;
  /** How often in a row the lane was busy. */
  busy: number;
  /** The set that the lane is in, while a call of it may be taken. */
  place: Set<Lane<Call>> | undefined;
}

export class CallQueue<Call extends QueuedCall> {
  readonly #bounds: Bounds;
  readonly #batch: BatchBounds;
  readonly #lanes = new Map<string, Lane<Call>>();
  /** Lanes with calls that may be taken: those that were tried before come first, then by arrival. */
  readonly #again = new Set<Lane<Call>>();
  readonly #ready = new Set<Lane<Call>>();
  /** Lanes whose next call goes alone. */
  readonly #alone = new Set<Lane<Call>>();
  #calls = 0;
  #rows = 0;
  #bytes = 0;

  constructor(bounds: Bounds, batch: BatchBounds) {
    this.#bounds = bounds;
    this.#batch = batch;
  }

  /** Calls that wait; those under way are not among them. */
  get calls(): number {
    return this.#calls;
  }

  get rows(): number {
    return this.#rows;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Puts a call at the end of its lane; false, and nothing is kept, when there is no room for it. */
  add(call: Call): boolean {
    const { callsMax, bytesMax } = this.#bounds;
    if (this.#calls + 1 > callsMax || (this.#calls > 0 && this.#bytes + call.bytes > bytesMax)) return false;
    const lane = this.#laneOf(call);
    lane.waiting.push(call);
    this.#count(call, 1);
    this.#sort(lane);
    return true;
  }

  isUnderWay(laneName: string): boolean {
    return this.#lanes.get(laneName)?.underWay ?? false;
  }

  /** Marks the lane of a call that is carried out without having been queued. */
  begin(call: Call): void {
    const lane = this.#laneOf(call);
    lane.underWay = true;
    this.#sort(lane);
  }

  /** True when a batch could be taken now. */
  get hasBatch(): boolean {
    return this.#again.size > 0 || this.#ready.size > 0;
  }

  /** The next calls that go together, `callsMax` at most, of each lane in order; their lanes are under way until `end`. */
  takeBatch(callsMax: number): Call[] {
    const batch: Call[] = [];
    const most = Math.min(callsMax, this.#batch.callsMax);
    const room = { rows: this.#batch.rowsMax, bytes: this.#batch.bytesMax };
    for (const lane of [...this.#again, ...this.#ready]) {
      const count = this.#countThatFits(lane, most - batch.length, room, batch.length === 0);
      if (count === 0) break; // whoever came first goes first: a large call is not overtaken for ever by small ones
      for (const call of this.#take(lane, count)) {
        room.rows -= call.rows;
        room.bytes -= call.bytes;
        batch.push(call);
      }
      if (batch.length >= most) break;
    }
    return batch;
  }

  /** True when a lane was busy too often. */
  get hasAlone(): boolean {
    return this.#alone.size > 0;
  }

  /** The first call of such a lane, to be carried out alone. */
  takeAlone(): Call {
    for (const lane of this.#alone) for (const call of this.#take(lane, 1)) return call;
    throw new Error('no call goes alone: ask hasAlone first');
  }

  /** Calls of lanes that wait for their turn alone. */
  listAlone(): Call[] {
    return [...this.#alone].flatMap((lane) => lane.waiting);
  }

  /** Gives a lane that waits for its turn alone one more try together with the rest. */
  tryTogether(laneName: string): void {
    const lane = this.#lanes.get(laneName);
    if (lane === undefined || lane.place !== this.#alone) return;
    lane.busy = TRIES_TOGETHER - 1;
    this.#sort(lane, true);
  }

  /** The lane's calls are no longer under way. `back` go to its head in their order; `busy`: because others hold it. */
  end(laneName: string, back: readonly Call[] = [], { busy }: { busy: boolean } = { busy: false }): void {
    const lane = this.#lanes.get(laneName);
    if (lane === undefined) throw new Error(`no call of ${laneName} is under way`);
    lane.underWay = false;
    lane.busy = busy ? lane.busy + 1 : 0;
    if (back.length > 0) lane.waiting = [...back, ...lane.waiting];
    for (const call of back) this.#count(call, 1);
    this.#sort(lane, back.length > 0);
  }

  /** How many calls wait in a lane. */
  callsOf(laneName: string): number {
    return this.#lanes.get(laneName)?.waiting.length ?? 0;
  }

  /** Takes out, and gives, the first calls that wait in a lane. */
  withdraw(laneName: string, count: number): Call[] {
    const lane = this.#lanes.get(laneName);
    if (lane === undefined) return [];
    const calls = lane.waiting.splice(0, count);
    for (const call of calls) this.#count(call, -1);
    this.#sort(lane);
    return calls;
  }

  #laneOf({ lane: name }: Call): Lane<Call> {
    const known = this.#lanes.get(name);
    if (known !== undefined) return known;
    const lane: Lane<Call> = { name, waiting: [], underWay: false, busy: 0, place: undefined };
    this.#lanes.set(name, lane);
    return lane;
  }

  #countThatFits(lane: Lane<Call>, callsMax: number, room: { rows: number; bytes: number }, isFirst: boolean): number {
    let { rows, bytes } = room;
    const singles = new Set<string>();
    let count = 0;
    for (const call of lane.waiting) {
      rows -= call.rows;
      bytes -= call.bytes;
      if (count >= callsMax || ((rows < 0 || bytes < 0) && !(isFirst && count === 0))) break;
      if (call.single !== undefined && singles.has(call.single)) break;
      if (call.single !== undefined) singles.add(call.single);
      count += 1;
      if (call.last) break;
    }
    return count;
  }

  #take(lane: Lane<Call>, count: number): Call[] {
    const taken = lane.waiting.splice(0, count);
    for (const call of taken) this.#count(call, -1);
    lane.underWay = true;
    this.#sort(lane);
    return taken;
  }

  #count(call: Call, sign: 1 | -1): void {
    this.#calls += sign;
    this.#rows += sign * call.rows;
    this.#bytes += sign * call.bytes;
  }

  /** Puts the lane where it belongs now. */
  #sort(lane: Lane<Call>, triedBefore = false): void {
    const place = lane.underWay || lane.waiting.length === 0 ? undefined : this.#placeOf(lane, triedBefore);
    if (place !== lane.place) {
      lane.place?.delete(lane);
      place?.add(lane);
      lane.place = place;
    }
    if (!lane.underWay && lane.waiting.length === 0) this.#lanes.delete(lane.name);
  }

  #placeOf(lane: Lane<Call>, triedBefore: boolean): Set<Lane<Call>> {
    if (lane.busy >= TRIES_TOGETHER) return this.#alone;
    return triedBefore || lane.place === this.#again ? this.#again : this.#ready;
  }
}
