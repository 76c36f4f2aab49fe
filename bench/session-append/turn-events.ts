import type { JsonObject } from '@runplane/contracts';

/** An event as each of the cases gets it. Its number and time are the store's; where a store leaves them to its caller, they are the case's. */
export interface TurnEvent {
  readonly type: string;
  readonly turnId: string;
  readonly stepId: string | null;
  readonly data: JsonObject;
}

type Step = (step: number) => readonly (readonly [type: string, data: JsonObject])[];

const USAGE = { inputTokens: 18_240, cachedInputTokens: 16_384, outputTokens: 412, reasoningTokens: 96 };

const opening: Step = (step) => [
  [
    'step/start',
    {
      number: step,
      model: 'example-large-2',
      provider: 'example',
      effort: 'medium',
      tools: ['read_file', 'search', 'apply_patch', 'shell'],
    },
  ],
  [
    'request/context',
    {
      instructions: 'sha256:5a0f9c2d61e47b38a9f0c1d2e3b4a5968778695a4b3c2d1e0f9e8d7c6b5a4938',
      items: 48 + step,
      tokens: 18_240,
      limit: 200_000,
      parts: { system: 2_100, history: 14_980, notes: 260, tools: 900 },
    },
  ],
  [
    'assistant/message',
    {
      message: {
        role: 'assistant',
        content: [
          {
            type: 'text',
            text: 'The open turns are found by a partial index now. I look at the migration before it, since the old index has to stay until the next release has run for a day.',
          },
        ],
      },
      usage: USAGE,
    },
  ],
];

const call = (step: number, number: number): readonly (readonly [string, JsonObject])[] => [
  [
    'tool/call',
    {
      callId: `call-${step}-${number}`,
      name: 'read_file',
      arguments: JSON.stringify({ path: `prisma/migrations/20260401120000_open_turns/migration-${number}.sql`, offset: 0, limit: 200 }),
      operationId: `operation-${step}-${number}`,
    },
  ],
  [
    'tool/result',
    {
      callId: `call-${step}-${number}`,
      name: 'read_file',
      isError: false,
      message: {
        role: 'tool',
        content:
          "CREATE UNIQUE INDEX commands_open_turn ON commands (tenant_id, session_id)\n  WHERE type = 'turn' AND state IN ('pending', 'acknowledged');\n-- the old index stays: code of the last release still names it in its ON CONFLICT clause\n",
      },
      durationMs: 14,
    },
  ],
];

const closing: Step = (step) => [['step/end', { number: step, stopReason: 'tool_use', durationMs: 4_812, usage: USAGE }]];

/** One turn of an agent: three steps with three tool calls, as 20 events; their data is 117 to 343 bytes of JSON, 213 on average. */
const TURN: readonly (readonly [type: string, step: number | null, data: JsonObject])[] = [
  [
    'turn/start',
    null,
    { submissionId: 'sub-0190f4c2', source: { kind: 'api', user: 'user-4711' }, mode: 'default', model: 'example-large-2' },
  ],
  ...[...opening(1), ...call(1, 1), ...call(1, 2), ...closing(1)].map(inStep(1)),
  ...[...opening(2), ...call(2, 1), ...closing(2)].map(inStep(2)),
  ...[...opening(3), ...closing(3)].map(inStep(3)),
  ['turn/end', null, { status: 'completed', steps: 3, toolCalls: 3, usage: USAGE, durationMs: 15_204 }],
];

function inStep(step: number) {
  return ([type, data]: readonly [string, JsonObject]) => [type, step, data] as const;
}

/** Types of which an append keeps text to search in. */
export const HISTORY_TYPES: readonly string[] = ['user/message', 'assistant/message', 'tool/call', 'tool/result'];

/** The events of turn after turn, the same for each caller of each case: calls take as many as they append. */
export function turnsOf(): (count: number) => TurnEvent[] {
  let next = 0;
  return (count) =>
    Array.from({ length: count }, () => {
      const turn = Math.floor(next / TURN.length);
      const [type, step, data] = TURN[next % TURN.length] ?? ['', null, {}];
      next += 1;
      return { type, turnId: `turn-${turn}`, stepId: step === null ? null : `turn-${turn}-step-${step}`, data };
    });
}
