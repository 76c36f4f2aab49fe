import { originalTime } from './original-time';

it.each([
  [1_700_000_000_000, '2023-11-14T22:13:20+00:00'],
  [1_700_000_000_123, '2023-11-14T22:13:20.123000+00:00'],
  [1_700_000_000_000 + 300_000, '2023-11-14T22:18:20+00:00'], // an approval's expiry, without a timeout of its own
  [0, '1970-01-01T00:00:00+00:00'],
  [253_402_300_799_999, '9999-12-31T23:59:59.999000+00:00'],
])('%d ms is %s', (milliseconds, text) => {
  expect(originalTime(milliseconds)).toBe(text);
});

it('has no text for a year past 9999', () => {
  expect(() => originalTime(253_402_300_800_000)).toThrow(RangeError);
});
