// @vitest-environment node
import { expect, test } from "vitest";

import { ProblemError } from "../api";
import type { ConversationSnapshot } from "../api";
import { describeConnection, describePhase, describeCompaction, wasNotFound } from "./status";

const snapshot = (changes: Partial<ConversationSnapshot>): ConversationSnapshot => ({ state: null, connection: "live", toolProgress: new Map(), ...changes });

test("a working connection shows no message", () => {
  expect(describeConnection(snapshot({}))).toBe("");
  expect(describeConnection(snapshot({ connection: "connecting" }))).toBe("");
});

test("a broken connection and being offline are distinguished", () => {
  expect(describeConnection(snapshot({ connection: "reconnecting" }))).toMatch(/Reconnecting/);
  expect(describeConnection(snapshot({ connection: "offline" }))).toMatch(/offline/);
});

test("a tab that waits for other tabs says so", () => {
  expect(describeConnection(snapshot({ connection: "waiting" }))).toMatch(/too many tabs/);
});

test("a rejection shows the server's text", () => {
  const problem = new ProblemError({ type: "urn:everturn:problem:forbidden", title: "Not allowed", status: 403, detail: "It is closed to you." });

  expect(describeConnection(snapshot({ connection: "refused", problem }))).toContain("It is closed to you.");
  expect(wasNotFound(snapshot({ connection: "refused", problem }))).toBe(false);
});

test("a missing conversation is described for a user", () => {
  const problem = new ProblemError({ type: "urn:everturn:problem:not-found", title: "Not found", status: 404, detail: "" });

  expect(describeConnection(snapshot({ connection: "refused", problem }))).toMatch(/^Conversation not found/);
  expect(wasNotFound(snapshot({ connection: "refused", problem }))).toBe(true);
  const state = { cursor: "1-1", turns: [] } as unknown as ConversationSnapshot["state"];
  expect(describeConnection(snapshot({ connection: "refused", problem, state }))).toMatch(/^This conversation was deleted/);
  expect(wasNotFound(snapshot({ connection: "refused", problem, state }))).toBe(false);
});

test("a compaction is reported while it runs and when it is done", () => {
  const notice = { status: "completed" as const, reason: "size", before_tokens: 90_000, after_tokens: 12_000 };

  expect(describeCompaction(notice)).toBe("Earlier messages were summarized.");
  expect(describeCompaction({ ...notice, status: "started" })).toBe("Summarizing earlier messages…");
  expect(describeCompaction({ ...notice, status: "skipped" })).toBe("");
});

test("a phase is reported until it ends", () => {
  expect(describePhase({ phase: "selecting_tools", total_tools: 30 })).toBe("Choosing tools…");
  expect(describePhase({ phase: "model_waiting", waited_ms: 5_200 })).toBe("Waiting for the model… (5 s)");
  expect(describePhase({ phase: "model_retrying", retry_in_ms: 2_000, attempt: 2, max_attempts: 4 })).toBe("The model didn’t answer. Trying again in 2.0 s, attempt 2 of 4…");
  expect(describePhase({ phase: "model_fallback" })).toMatch(/another model/);
  expect(describePhase({ phase: "newer" as "model_fallback" })).toBe("");
});
