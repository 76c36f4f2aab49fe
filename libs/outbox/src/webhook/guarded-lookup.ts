import ipaddr from 'ipaddr.js';
import dns from 'node:dns';
import type { LookupFunction } from 'node:net';

// Whoever may name an endpoint may not thereby reach what only this server can: its own ports, the network behind it, the cloud's metadata. So the
// address is judged that the connection is made to, behind the name's resolution: a name that changes its address between look and use gains nothing.

/** An address that webhooks may not reach. */
export class AddressRefused extends Error {
  constructor(host: string) {
    super(`${host} is no public address: webhooks reach others only where allowedRanges names them`);
  }
}

export type AddressRule = (address: string) => boolean;

/** Public unicast addresses pass, and those of the ranges. An IPv4 address within an IPv6 one counts as what it is. */
export function addressRule(allowedRanges: readonly string[]): AddressRule {
  const ranges = allowedRanges.map((range) => ipaddr.parseCIDR(range));
  return (address) => {
    if (!ipaddr.isValid(address)) return false;
    const parsed = ipaddr.process(address);
    if (parsed.range() === 'unicast') return true;
    return ranges.some(([base, bits]) => base.kind() === parsed.kind() && parsed.match(base, bits));
  };
}

/** The lookup of a request: of a name's addresses those that pass; an error where none does. */
export function guardedLookup(passes: AddressRule): LookupFunction {
  return (host, options, callback) => {
    dns.lookup(host, { ...options, all: true }, (error, found) => {
      if (error !== null) {
        callback(error, []);
        return;
      }
      const allowed = found.filter(({ address }) => passes(address));
      const [first] = allowed;
      if (first === undefined) callback(new AddressRefused(host), []);
      else if (options.all === true) callback(null, allowed);
      else callback(null, first.address, first.family);
    });
  };
}
