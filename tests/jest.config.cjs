const preset = require('../jest.preset.cjs');

// The Kubernetes client and what it loads are ES modules, which jest's own loader cannot require.
const ES_MODULES = '/node_modules/(@kubernetes/client-node|openid-client|oauth4webapi|jose|jsonpath-plus)/';
const [[, typescript]] = Object.entries(preset.transform);
const [swc, options] = typescript;

module.exports = {
  ...preset,
  displayName: 'tests',
  // Needs a Kafka broker: npm run test:kafka.
  testPathIgnorePatterns: [...preset.testPathIgnorePatterns, '<rootDir>/kafka/'],
  transform: {
    ...preset.transform,
    [`${ES_MODULES}.+\\.js$`]: [swc, { ...options, sourceMaps: false, jsc: { ...options.jsc, parser: { syntax: 'ecmascript' } } }],
  },
  transformIgnorePatterns: [`/node_modules/(?!${ES_MODULES.slice('/node_modules/'.length)})`],
};
