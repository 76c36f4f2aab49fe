module.exports = {
  // Specs wait more than they compute; jest would leave one core idle.
  maxWorkers: '100%',
  projects: [
    '<rootDir>/libs/*/jest.config.cjs',
    '<rootDir>/apps/*/jest.config.cjs',
    '<rootDir>/tests/jest.config.cjs',
    '<rootDir>/bench/jest.config.cjs',
  ],
};
