import nx from '@nx/eslint-plugin';
import { defineConfig } from 'eslint/config';
import tseslint from 'typescript-eslint';

// Imports run one way. Each package may import those of its list and no other; the packages carry the tag in package.json ("nx".tags).
const imports = {
  contracts: [],
  database: ['contracts'],
  outbox: ['contracts', 'database'],
  sessions: ['contracts', 'database', 'outbox'],
  runs: ['contracts', 'database', 'outbox', 'sessions'],
  queue: ['contracts', 'database', 'outbox', 'sessions', 'runs'],
  client: ['contracts'],
  runner: ['contracts', 'client'],
  api: ['contracts', 'database', 'outbox', 'sessions', 'runs', 'queue', 'client', 'runner'],
};
const depConstraints = [
  ...Object.entries(imports).map(([from, to]) => ({
    sourceTag: `scope:${from}`,
    onlyDependOnLibsWithTags: to.map((name) => `scope:${name}`),
  })),
  { sourceTag: 'type:lib', bannedExternalImports: ['fastify', 'fastify-*', '@fastify/*'] },
  { sourceTag: 'type:programs', onlyDependOnLibsWithTags: ['*'] },
];

const specs = ['**/*.spec.ts'];

export default defineConfig(
  { ignores: ['**/dist/**', 'coverage/**', 'libs/database/src/generated/**', '.nx/**', '.runplane/**', '**/node_modules/**'] },
  ...tseslint.configs.recommendedTypeChecked,
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },
  { languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } } },
  {
    files: ['**/*.ts'],
    plugins: { '@nx': nx },
    rules: {
      // Doors of a library that bring a client of their own are loaded where a sink needs them; its main door is not.
      '@nx/enforce-module-boundaries': [
        'error',
        {
          enforceBuildableLibDependency: false,
          allow: [],
          depConstraints,
          checkDynamicDependenciesExceptions: ['^@runplane/outbox(/embedded-kafka|/testing)?$'],
        },
      ],
      '@typescript-eslint/require-await': 'off', // Fastify tells a handler from a callback by `async`
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'inline-type-imports' }],
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_', ignoreRestSiblings: true }],
      eqeqeq: ['error', 'always', { null: 'ignore' }],
    },
  },
  {
    files: specs, // bodies of responses and rows of raw clients are `any`
    rules: {
      '@typescript-eslint/no-unsafe-member-access': 'off',
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-argument': 'off',
      '@typescript-eslint/no-unsafe-call': 'off',
      '@typescript-eslint/no-unsafe-return': 'off',
      '@typescript-eslint/unbound-method': 'off',
    },
  },
  {
    files: ['libs/**/*.ts', 'apps/**/*.ts'],
    ignores: ['**/*.sql.ts', 'libs/database/src/**', ...specs],
    rules: {
      'no-restricted-syntax': [
        'error',
        {
          selector: String.raw`MemberExpression[property.name=/^\$(query|execute)Raw(Unsafe|Typed)?$/]`,
          message: 'Statements live in *.sql.ts and run through a SqlExecutor.',
        },
      ],
    },
  },
  {
    files: ['libs/**/*.ts', 'apps/**/*.ts'],
    ignores: ['libs/*/src/testing/**', ...specs],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          paths: [
            {
              name: '@runplane/database/testing',
              message: 'Only spec files, what they are built with, tests/ and bench/ may use the test database.',
            },
          ],
          patterns: [
            { group: ['./testing', './testing/*', '../testing', '../testing/*'], message: 'Only spec files may use the test database.' },
          ],
        },
      ],
    },
  },
  {
    files: ['**/*.{mjs,cjs}', '*.ts', 'tools/**/*.js'], // outside every tsconfig
    extends: [tseslint.configs.disableTypeChecked],
    languageOptions: {
      globals: {
        module: 'readonly',
        require: 'readonly',
        __dirname: 'readonly',
        process: 'readonly',
        console: 'readonly',
        URL: 'readonly',
        crypto: 'readonly',
        WebAssembly: 'readonly',
      },
    },
    rules: { '@typescript-eslint/no-require-imports': 'off' },
  },
);
