// A worker of your own that keeps its session's log: it holds the lease, every step is an event, and a dangerous call waits for a person.

import type { Db } from '@runplane/database';
import { assertApproved, createSessions, openSessionWriter, waitForApproval } from '@runplane/sessions';

export interface CleanUp {
  readonly tenantId: string;
  readonly sessionId: string;
  readonly turnId: string;
  readonly folder: string;
}

/** One turn: says what it will do, asks, does it or leaves it. Whoever takes the session over meanwhile finds each step in the log. */
export async function cleanUp(db: Db, { tenantId, sessionId, turnId, folder }: CleanUp, remove: (path: string) => Promise<void>) {
  const writer = await openSessionWriter(db, { tenantId, sessionId }); // refused while another worker holds the session
  try {
    const place = { turnId, stepId: `${turnId}.1` };
    const call = { callId: `${turnId}.call`, name: 'remove_folder', arguments: { folder } };
    await writer.append([
      { type: 'turn/start', turnId, data: {} },
      { type: 'step/start', ...place, data: {} },
      { type: 'assistant/message', ...place, data: { message: { role: 'assistant', content: `I would remove ${folder}.` } } },
    ]);

    const asking = { tenantId, sessionId, approvalId: call.callId, epoch: writer.epoch, ...place };
    await createSessions(db).requestApproval({ ...asking, toolName: call.name, arguments: call.arguments, callId: call.callId });
    const answer = { tenantId, sessionId, approvalId: call.callId };
    let outcome: string = 'pending';
    while (outcome === 'pending') {
      writer.signal.throwIfAborted(); // the lease is lost: somebody else goes on from here
      ({ outcome } = await waitForApproval(db, { ...answer, waitMs: 30_000, signal: writer.signal }));
    }

    if (outcome === 'approved') {
      await writer.append([{ type: 'tool/call', ...place, data: call }]);
      await assertApproved(db, { ...answer, arguments: call.arguments }); // of exactly these arguments
      await remove(folder);
    }
    const message = { role: 'tool', content: outcome === 'approved' ? 'removed' : `not removed: ${outcome}` };
    await writer.append([
      { type: 'tool/result', ...place, data: { callId: call.callId, message } },
      { type: 'step/end', ...place, data: {} },
      { type: 'turn/end', turnId, data: {} },
    ]);
    return outcome;
  } finally {
    await writer.close();
  }
}
