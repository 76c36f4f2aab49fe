module.exports = {
  // Specs wait more than they compute; jest would leave one core idle.
  maxWorkers: '100%',
  testSequencer: '<rootDir>/tools/long-first.cjs',
  // A bound, not a wait: on a busy machine a test that takes seconds alone may take twenty times as long. What a test waits for says so before.
  testTimeout: 180_000,
  projects: [
    '<rootDir>/libs/*/jest.config.cjs',
    '<rootDir>/apps/*/jest.config.cjs',
    '<rootDir>/tests/jest.config.cjs',
    '<rootDir>/bench/jest.config.cjs',
  ],
};
