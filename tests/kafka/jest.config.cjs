// What needs a Kafka broker: `npm run test:kafka`, and no part of `npm test`.
const tests = require('../jest.config.cjs');

module.exports = { ...tests, displayName: 'kafka', rootDir: __dirname, testPathIgnorePatterns: ['/node_modules/'], testTimeout: 120_000 };
