// The order of the spec files: those that take longest first, so that none of them runs alone at the end. Within both parts as jest has it: by their last
// times, or by size where there are none.
const { default: Sequencer } = require('@jest/test-sequencer');

const LONG =
  /[\\/]tests[\\/](faults[\\/]|races[\\/](pairs|fifo-stress)|scenarios[\\/](main-job|demo)|contract[\\/](http-(access|input|streams)|plans)|properties[\\/]feed)|[\\/]migrate\.int\./;

module.exports = class LongFirst extends Sequencer {
  sort(tests) {
    const isLong = ({ path }) => LONG.test(path);
    const sorted = super.sort(tests);
    return [...sorted.filter(isLong), ...sorted.filter((test) => !isLong(test))];
  }
};
