import { LeaseRequired, ReservedEventType } from '@runplane/contracts';
import { requireTenant, type SqlExecutor } from '@runplane/database';
import type { UnplacedEvent } from './projections/projection';
import type { SessionKey } from './session.sql';

/** What must arrive while a worker holds the lease: answers of people, and what comes in from outside. `x/*` is every type below x. */
export const LEASELESS_EVENT_TYPES: readonly string[] = ['approval/resolved', 'user-input/resolved', 'input/enqueued', 'channel/*'];

/** Facts about the session itself, which only the server tells. */
const RESERVED = 'session/*';

/**
 * Whether a caller from outside may append these. With an epoch the lease decides, when the head is locked; without one only some types come in,
 * and those that the tenant has added. Errors: ReservedEventType, LeaseRequired, TenantNotFound.
 */
export async function assertMayAppend(
  on: SqlExecutor,
  { tenantId, sessionId }: SessionKey,
  events: readonly Pick<UnplacedEvent, 'type'>[],
  epoch: number | undefined,
): Promise<void> {
  const reserved = events.find(({ type }) => fits(type, RESERVED));
  if (reserved !== undefined) {
    throw new ReservedEventType(`Only the server writes events of the type ${reserved.type}.`, { type: reserved.type });
  }
  if (epoch !== undefined) return;
  const isLeaseless = (types: readonly string[], type: string): boolean => types.some((pattern) => fits(type, pattern));
  const fenced = events.filter(({ type }) => !isLeaseless(LEASELESS_EVENT_TYPES, type));
  if (fenced.length === 0) return;
  const { settings } = await requireTenant(on, tenantId);
  const refused = fenced.find(({ type }) => !isLeaseless(settings.leaselessEventTypes ?? [], type));
  if (refused === undefined) return;
  throw new LeaseRequired(`Events of the type ${refused.type} need the epoch of the session lease: acquire it first.`, {
    sessionId,
    type: refused.type,
  });
}

const fits = (type: string, pattern: string): boolean =>
  pattern.endsWith('/*') ? type.startsWith(pattern.slice(0, -1)) : type === pattern;
