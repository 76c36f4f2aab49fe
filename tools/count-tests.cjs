/** A jest reporter that writes the counts of a run to the file that RUNPLANE_TEST_COUNTS names, as `<passed> passed, <failed> failed`. */
const { writeFileSync } = require('node:fs');

module.exports = class CountTests {
  onRunComplete(_contexts, results) {
    // A file that does not even load has no tests to count.
    const broken = results.testResults.filter((file) => file.testExecError).length;
    writeFileSync(process.env.RUNPLANE_TEST_COUNTS, `${results.numPassedTests} passed, ${results.numFailedTests + broken} failed\n`);
  }
};
