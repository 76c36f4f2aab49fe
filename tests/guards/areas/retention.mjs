// Retention: nothing goes that has not been archived, or that somebody still needs.
import { RUNS, races, retention } from '../places.mjs';

export const retentionGuards = [
  {
    name: 'a copy is read back before anything is removed',
    file: `${RUNS}/run-archive.ts`,
    text: 'await verify(sink, key, { receipt, manifest: written.manifest, alive: content.alive });',
    replacement: '',
    test: { file: `${RUNS}/retention-faults.int.spec.ts`, name: 'has another copy than was written: one bit leaves everything' },
  },
  {
    name: 'a run that is not what was archived stays',
    file: `${RUNS}/remove-run.ts`,
    text: 'if (now?.stamp !== stored.stamp) throw new RunChanged();',
    replacement: '',
    test: races('retention', 'keeps the run until a copy has its record too'),
  },
  {
    name: 'a removal is confirmed by its reservation',
    file: `${RUNS}/remove-run.ts`,
    text: 'archive: archived }); await confirmReservation(tx, hold);',
    replacement: 'archive: archived });',
    test: races('retention', 'was too slow removes nothing any more'),
  },
  {
    name: 'an unsettled job keeps its run',
    file: `${RUNS}/retention.sql.ts`,
    text: "kind === 'runs' ? sql`${HAS_UNSETTLED_JOB} OR ${IS_HELD}",
    replacement: "kind === 'runs' ? sql`${IS_HELD}",
    test: retention('a job of it is not settled'),
  },
  {
    name: 'readers are told that events are gone',
    file: `${RUNS}/require.ts`,
    text: 'if (pruned !== null && afterSeq < pruned.firstSeq - 1) throw eventsPruned(runId, pruned);',
    replacement: '',
    test: retention('go in parts; readers are told'),
  },
  {
    name: 'the id of a removed run is not used again',
    file: `${RUNS}/create-run.ts`,
    text: 'if (stored.inputHash === null) throw await absentRun(tx, key);',
    replacement: 'if (stored.inputHash === null) return false;',
    test: retention('leaves its id used for ever'),
  },
  {
    name: 'a repeat whose turn has just been removed starts over',
    file: `${RUNS}/admit-turn.ts`,
    text: 'if (stored?.inputHash == null) throw goneMeanwhile();',
    replacement: '',
    test: races('retention', 'behind it a new one'),
  },
  {
    name: 'a reader that marks at that moment is passed over',
    file: 'libs/sessions/src/read-cursor.sql.ts',
    text: 'FOR UPDATE OF r SKIP LOCKED',
    replacement: '',
    test: { file: `${RUNS}/prune-readers.int.spec.ts`, name: 'who marks at that moment is passed over, and very many marks go in parts' },
  },
  {
    name: 'a reader goes with the last of its marks',
    file: 'libs/sessions/src/read-cursor.sql.ts',
    text: 'AND r.reader_id NOT IN (SELECT reader_id FROM rest)',
    replacement: '',
    test: { file: `${RUNS}/prune-readers.int.spec.ts`, name: 'who marks at that moment is passed over, and very many marks go in parts' },
  },
];
