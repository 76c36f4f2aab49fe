import { ROUTE_SAMPLES } from '../support/route-samples';
import { useApi } from '../support/test-api';

const api = useApi();

interface Operation {
  readonly operationId?: string;
  readonly security?: readonly Record<string, readonly string[]>[];
  readonly responses: Record<string, { content?: Record<string, unknown> }>;
}

describe('the OpenAPI document', () => {
  test('is of version 3.1, and every reference in it leads somewhere', async () => {
    const { body: document } = await api.call('GET', '/openapi.json', { key: '' });
    const references: string[] = [];
    JSON.stringify(document, (key, value: unknown) => {
      if (key === '$ref' && typeof value === 'string') references.push(value);
      return value;
    });

    expect(document.openapi).toMatch(/^3\.1\./);
    expect(references.length).toBeGreaterThan(10);
    for (const reference of new Set(references)) {
      const [, ...path] = reference.split('/');
      const target = path.reduce<unknown>(
        (at, part) => (at as Record<string, unknown> | undefined)?.[part.replaceAll('~1', '/')],
        document,
      );
      expect([reference, target]).toEqual([reference, expect.anything()]);
    }
  });

  test('says of every operation its name, its scopes, its answers and the form of a refusal', async () => {
    const { body: document } = await api.call('GET', '/openapi.json', { key: '' });
    const operations = Object.entries(document.paths as Record<string, Record<string, Operation>>).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({ name: `${method.toUpperCase()} ${path}`, path, operation })),
    );
    const v1 = operations.filter(({ path }) => path.startsWith('/v1/'));

    expect(v1).toHaveLength(Object.keys(ROUTE_SAMPLES).length);
    for (const { name, operation } of v1) {
      expect([name, operation.operationId]).toEqual([name, expect.any(String)]);
      expect([name, operation.security]).toEqual([name, expect.arrayContaining([{ apiKey: [expect.any(String)] }])]);
      expect([name, operation.responses['default']?.content]).toEqual([name, { 'application/problem+json': expect.anything() }]);
    }
    expect(new Set(v1.map(({ operation }) => operation.operationId)).size).toBe(v1.length);
  });

  test('is shown as a page', async () => {
    const page = await api.call('GET', '/docs/', { key: '' });

    expect([page.status, page.headers['content-type']]).toEqual([200, expect.stringMatching(/^text\/html/)]);
  });
});
