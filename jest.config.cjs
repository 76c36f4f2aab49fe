module.exports = {
  projects: [
    '<rootDir>/libs/*/jest.config.cjs',
    '<rootDir>/apps/*/jest.config.cjs',
    '<rootDir>/tests/jest.config.cjs',
    '<rootDir>/bench/jest.config.cjs',
  ],
};
