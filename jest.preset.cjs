const path = require('node:path');

const support = (file) => path.join(__dirname, 'libs/database/src/testing', file);

/** What every project's jest.config.cjs spreads. The condition makes `@runplane/*` resolve to sources: no build is needed to run a spec. */
module.exports = {
  testEnvironment: 'node',
  testEnvironmentOptions: { customExportConditions: ['@runplane/source', 'node', 'node-addons'] },
  testMatch: ['<rootDir>/**/*.spec.ts'],
  testPathIgnorePatterns: ['/node_modules/', '<rootDir>/dist/'],
  modulePathIgnorePatterns: ['<rootDir>/dist/'],
  transform: {
    '^.+\\.ts$': [
      '@swc/jest',
      {
        swcrc: false,
        sourceMaps: true,
        module: { type: 'commonjs' },
        jsc: { target: 'es2022', parser: { syntax: 'typescript' } },
      },
    ],
  },
  globalSetup: support('global-setup.ts'),
  globalTeardown: support('global-teardown.ts'),
};
