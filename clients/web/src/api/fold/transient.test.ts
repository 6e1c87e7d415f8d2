// @vitest-environment node
import { describe, expect, it } from "vitest";

import type { StreamEvent } from "../types";
import { MAX_MESSAGES, NOTHING, type Transient, foldTransient } from "./transient";

function fold(...events: readonly Pick<StreamEvent, "type" | "data">[]): Transient {
  const address = { ts: "", conversation_id: "conv_1", turn_id: "turn_1" };
  return events.reduce((seen, event) => foldTransient(seen, { ...address, ...event } as StreamEvent), NOTHING);
}

function report(kind: "progress" | "message" | "data", text: string) {
  return { type: "chat.tool", data: { call_id: "call_1", tool_id: "a.b", kind, text } } as const;
}

const STEP = { step: "s", title: "t", call_id: "call_1", status: "completed" } as const;
const ENDED = { outcome: "completed", followups: [], rounds: 1, usage: {}, elapsed_ms: 1, sources_used: [] };

describe("transient state", () => {
  it("keeps the queue position until the turn starts", () => {
    const queued = { type: "conv.status", data: { state: "queued", turn_id: "turn_1", position: 2 } } as const;

    expect(fold(queued).place).toEqual({ turnId: "turn_1", ahead: 2, hasMore: false });
    expect(fold(queued, { type: "conv.status", data: { state: "running" } }).place).toBeUndefined();
  });

  it("keeps a tool's progress until its step ends, and its messages until the turn ends", () => {
    const folded = fold(report("progress", "Half."), report("message", "One."), { type: "chat.step", data: STEP });
    const ended = { type: "chat.complete", data: ENDED } as unknown as StreamEvent;

    expect(fold(report("progress", "Half.")).toolProgress.get("call_1")?.progress).toBe("Half.");
    expect(folded.toolProgress.get("call_1")).toMatchObject({ messages: ["One."] });
    expect(folded.toolProgress.get("call_1")).not.toHaveProperty("progress");
    expect(fold(report("message", "One."), ended).toolProgress.size).toBe(0);
  });

  it("keeps only the last messages", () => {
    const many = Array.from({ length: MAX_MESSAGES + 5 }, (_, n) => report("message", String(n)));

    expect(fold(...many).toolProgress.get("call_1")?.messages).toEqual(many.slice(5).map((each) => each.data.text));
  });

  it("keeps the phase until the turn continues in any way", () => {
    const retrying = { type: "chat.phase", data: { phase: "model_retrying", retry_in_ms: 900, attempt: 2 } } as const;
    const goesOn = { type: "chat.phase", data: { phase: "model_replying" } } as const;
    const signal = { type: "chat.signal", data: { signal_id: "sig_1" } } as unknown as StreamEvent;

    expect(fold(retrying).phase).toMatchObject({ phase: "model_retrying", turn_id: "turn_1" });
    expect(fold(retrying, signal).phase).toBeDefined();
    expect(fold(retrying, goesOn).phase).toBeUndefined();
    expect(fold(retrying, { type: "chat.step", data: STEP }).phase).toBeUndefined();
    expect(fold(retrying, { type: "chat.complete", data: ENDED } as unknown as StreamEvent).phase).toBeUndefined();
  });

  it("keeps a compaction until its turn ends or is rewound", () => {
    const begun = { type: "chat.compaction", data: { status: "started", reason: "soft", before_tokens: 9 } } as const;

    expect(fold(begun).compaction).toMatchObject({ status: "started", turn_id: "turn_1" });
    const rewound = { type: "chat.rewind", data: {} } as unknown as StreamEvent;

    expect(fold(begun, rewound).compaction).toBeUndefined();
  });
});
