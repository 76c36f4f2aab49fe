module.exports = {
  // Specs wait more than they compute; jest would leave one core idle.
  maxWorkers: '100%',
  testSequencer: '<rootDir>/tools/long-first.cjs',
  // A bound, not a wait: on a busy machine a test that takes 3 s alone may take thirty.
  testTimeout: 60_000,
  projects: [
    '<rootDir>/libs/*/jest.config.cjs',
    '<rootDir>/apps/*/jest.config.cjs',
    '<rootDir>/tests/jest.config.cjs',
    '<rootDir>/bench/jest.config.cjs',
  ],
};
