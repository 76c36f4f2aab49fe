import { redactText } from '@runplane/contracts';
import { API_KEY_PATTERN, bearerKey, makeApiKey } from './api-key';

describe('an API key', () => {
  test('is 256 random bits under a prefix, and another one each time', () => {
    const keys = Array.from({ length: 100 }, () => makeApiKey());

    for (const { key, hash } of keys) {
      expect(key).toMatch(API_KEY_PATTERN);
      expect(hash).toMatch(/^[0-9a-f]{64}$/);
    }
    expect(new Set(keys.map(({ hash }) => hash)).size).toBe(100);
  });

  test('is masked wherever it stands in a text', () => {
    for (const { key } of Array.from({ length: 50 }, () => makeApiKey())) {
      expect(redactText(`the key ${key} was refused`)).not.toContain(key.slice(36));
      expect(redactText(key)).not.toContain(key.slice(36));
    }
  });

  test('is taken from a Bearer header and from nothing else', () => {
    const { key } = makeApiKey();

    expect(bearerKey(`Bearer ${key}`)).toBe(key);
    expect(bearerKey(`bearer  ${key} `)).toBe(key);
    for (const header of [undefined, '', key, `Basic ${key}`, `Bearer ${key}x`, `Bearer ${key} ${key}`, 'Bearer rp_x', `Bearer \n${key}`]) {
      expect(bearerKey(header)).toBeUndefined();
    }
  });
});
