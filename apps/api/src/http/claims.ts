import type { FastifyReply } from 'fastify';

/**
 * Answers with what was claimed. Where the connection closes before the answer is written, nobody will work on it: it is given back then, and not when
 * its lease ends. An answer that was written and never arrived is the lease's business.
 */
export function sendClaims<Claimed, Answer>(
  reply: FastifyReply,
  claimed: readonly Claimed[],
  { answer, giveBack }: { answer: Answer; giveBack: (claimed: readonly Claimed[]) => Promise<unknown> },
): FastifyReply {
  const { raw, log } = reply;
  const handBack = (): void => {
    giveBack(claimed).catch((error: unknown) => {
      log.error({ err: error }, 'what a caller who has gone had claimed stays claimed until its lease ends');
    });
  };
  if (claimed.length > 0) {
    if (raw.destroyed) handBack();
    else raw.once('close', () => raw.writableFinished || handBack());
  }
  return reply.send(answer);
}
