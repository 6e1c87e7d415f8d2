// @vitest-environment node
import { readFileSync } from "node:fs";
import { env } from "node:process";
import { isDeepStrictEqual } from "node:util";
import { describe, expect, it } from "vitest";

import { buildConversation } from "../../testing/builders";
import type { StateView, StreamEvent, TurnView } from "../types";
import { foldEvent, foldEvents } from "./fold";

const STORIES_LIMIT_MS = 120_000;

/** One case from the server's own fold: the state before, and each event with the state after it. */
interface Story {
  readonly before: StateView;
  readonly steps: readonly { readonly event: StreamEvent; readonly after: StateView }[];
}

function buildState(turns: readonly TurnView[]): StateView {
  return { conversation: buildConversation({ state: "running" }), turns, cursor: "0-0" };
}

function buildEvent(id: string | undefined, fields: Pick<StreamEvent, "type" | "data">): StreamEvent {
  const address = { ts: "", conversation_id: "conv_1", turn_id: "turn_9", round: 1, ...(id === undefined ? {} : { id }) };
  return { ...address, ...fields } as StreamEvent;
}

function start(turnId: string): StreamEvent {
  const data = { turn_id: turnId, ordinal: 1, text: "Hi", attachments: [], created_at: "" };
  return { type: "chat.start", ts: "", conversation_id: "conv_1", turn_id: turnId, data };
}

const DELTA = { channel: "answer", instance: 0, index: 0, completed: false, marker: "answer", format: "markdown" as const };

describe("folding events", () => {
  it("gives the same state as the server's fold after every event", ({ skip }) => {
    const file = env.FOLD_STREAMS;
    if (file === undefined) return skip("tests/web_client/test_fold.py runs it with the server's stories");
    const stories = JSON.parse(readFileSync(file, "utf8")) as readonly Story[];

    expect(stories.length).toBeGreaterThan(0);
    for (const { before, steps } of stories) {
      let state = before;
      for (const { event, after } of steps) {
        state = foldEvent(state, event);
        const folded: unknown = JSON.parse(JSON.stringify(state));
        // isDeepStrictEqual is about a hundred times faster than toStrictEqual, which prints the difference.
        if (!isDeepStrictEqual(folded, after)) expect(folded).toStrictEqual(after);
      }
    }
  }, STORIES_LIMIT_MS);

  it("ignores events, enum values and fields that only a newer server knows", () => {
    const newer = (fields: object) => ({ ts: "", conversation_id: "conv_1", turn_id: "turn_9", round: 1, ...fields }) as unknown as StreamEvent;
    const usage = { input_tokens: 1, output_tokens: 1, cache_read_tokens: 0, cost_usd: 0, thinking_tokens: 9 };

    const after = foldEvents(buildState([]), [
      start("turn_9"),
      newer({ id: "1-1", type: "chat.hologram", data: { beams: 3 } }),
      newer({ id: "1-2", type: "chat.delta", data: { ...DELTA, text: "Known", format: "hologram", beams: 3 } }),
      newer({ id: "1-3", type: "chat.signal", data: { signal_id: "sig_1", kind: "pause", state: "parked", text: "", attachments: [] } }),
      newer({ id: "1-4", type: "conv.status", data: { state: "dreaming", turn_id: "turn_9" } }),
      newer({ id: "1-5", type: "chat.complete", data: { outcome: "paused", followups: [], rounds: 1, usage, elapsed_ms: 5, sources_used: [] } }),
    ]);

    expect(after.cursor).toBe("1-5");
    expect(after.turns).toHaveLength(1);
    expect(after.turns[0]).toMatchObject({ status: "completed", outcome: "paused", signals: [{ signal_id: "sig_1" }] });
    expect(after.turns[0]?.texts[0]?.text).toBe("Known");
  });

  it("keeps every object that an event does not change", () => {
    const ids = Array.from({ length: 10 }, (_, n) => `turn_${n}`);
    const before = foldEvents(buildState([]), ids.map(start));
    const first = foldEvent(before, buildEvent("1-1", { type: "chat.delta", data: { ...DELTA, text: "On" } }));

    const after = foldEvent(first, buildEvent("1-2", { type: "chat.delta", data: { ...DELTA, index: 1, text: "e" } }));

    expect(after.turns[9]?.texts[0]?.text).toBe("One");
    expect(after.turns.slice(0, 9).every((turn, place) => turn === before.turns[place])).toBe(true);
    expect(after.conversation).toBe(before.conversation);
    expect(after.turns[9]?.steps).toBe(before.turns[9]?.steps);
  });

  it("ignores duplicate events, other conversations' events and unknown turns", () => {
    const state = foldEvent(foldEvents(buildState([]), [start("turn_9")]), buildEvent("2-1", { type: "conv.title", data: { title: "One" } }));
    const late = buildEvent("1-9", { type: "conv.title", data: { title: "Late" } });
    const foreign = { ...buildEvent("9-1", { type: "conv.title", data: { title: "Foreign" } }), conversation_id: "conv_2" };
    const unknown = { ...buildEvent(undefined, { type: "chat.followups", data: { items: ["a"] } }), turn_id: "turn_0" };

    expect([late, foreign, unknown].map((event) => foldEvent(state, event) === state)).toEqual([true, true, true]);
  });
});
