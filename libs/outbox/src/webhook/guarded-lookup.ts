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

/** Of IPv6 only this is given out for hosts of the Internet; the rest is reserved, or stands for something else, as `::a.b.c.d` for an IPv4 address. */
const GLOBAL_IPV6 = ipaddr.parseCIDR('2000::/3');
/** Reads as a public address, and leads from each machine of a cloud (Azure) to its own host, which gives out credentials. */
const HOST_OF_MACHINE = '168.63.129.16';

/** Public unicast addresses pass, and those of the ranges. An IPv4 address within an IPv6 one counts as what it is. */
export function addressRule(allowedRanges: readonly string[]): AddressRule {
  const ranges = allowedRanges.map((range) => ipaddr.parseCIDR(range));
  return (address) => {
    if (!ipaddr.isValid(address)) return false;
    const parsed = ipaddr.process(address);
    return isPublic(parsed) || ranges.some(([base, bits]) => base.kind() === parsed.kind() && parsed.match(base, bits));
  };
}

function isPublic(address: ipaddr.IPv4 | ipaddr.IPv6): boolean {
  if (address.range() !== 'unicast') return false;
  return address.kind() === 'ipv6' ? address.match(GLOBAL_IPV6[0], GLOBAL_IPV6[1]) : address.toString() !== HOST_OF_MACHINE;
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
