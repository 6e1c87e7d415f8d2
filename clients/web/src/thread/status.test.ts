// @vitest-environment node
import { expect, test } from "vitest";

import { ProblemError } from "../api";
import type { ConversationSnapshot } from "../api";
import { describeConnection, describePhase, sayCompaction, wasNeverThere } from "./status";

const snapshot = (changes: Partial<ConversationSnapshot>): ConversationSnapshot => ({ state: null, connection: "live", toolProgress: new Map(), ...changes });

test("a connection that works is not spoken of", () => {
  expect(describeConnection(snapshot({}))).toBe("");
  expect(describeConnection(snapshot({ connection: "connecting" }))).toBe("");
});

test("a broken connection and being offline are told apart", () => {
  expect(describeConnection(snapshot({ connection: "reconnecting" }))).toMatch(/Reconnecting/);
  expect(describeConnection(snapshot({ connection: "offline" }))).toMatch(/offline/);
});

test("a window that waits for others says so", () => {
  expect(describeConnection(snapshot({ connection: "waiting" }))).toMatch(/Too many windows/);
});

test("a refusal is told in the server's words", () => {
  const problem = new ProblemError({ type: "urn:everturn:problem:forbidden", title: "Not allowed", status: 403, detail: "It is closed to you." });

  expect(describeConnection(snapshot({ connection: "refused", problem }))).toContain("It is closed to you.");
  expect(wasNeverThere(snapshot({ connection: "refused", problem }))).toBe(false);
});

test("a conversation that is not there is told in words for a person", () => {
  const problem = new ProblemError({ type: "urn:everturn:problem:not-found", title: "There is no such thing", status: 404, detail: "" });

  expect(describeConnection(snapshot({ connection: "refused", problem }))).toMatch(/^Conversation not found/);
  expect(wasNeverThere(snapshot({ connection: "refused", problem }))).toBe(true);
  const state = { cursor: "1-1", turns: [] } as unknown as ConversationSnapshot["state"];
  expect(describeConnection(snapshot({ connection: "refused", problem, state }))).toMatch(/^This conversation was deleted/);
  expect(wasNeverThere(snapshot({ connection: "refused", problem, state }))).toBe(false);
});

test("a summary is reported while it is made and when it is done", () => {
  const notice = { status: "completed" as const, reason: "size", before_tokens: 90_000, after_tokens: 12_000 };

  expect(sayCompaction(notice)).toBe("Earlier messages were summarized.");
  expect(sayCompaction({ ...notice, status: "started" })).toBe("Summarizing earlier messages…");
  expect(sayCompaction({ ...notice, status: "skipped" })).toBe("");
});

test("what the answer waits for is said until it goes on", () => {
  expect(describePhase({ phase: "model_waiting", waited_ms: 5_200 })).toBe("Waiting for the model… (5 s)");
  expect(describePhase({ phase: "model_retrying", retry_in_ms: 2_000, attempt: 2, max_attempts: 4 })).toBe("The model didn’t answer. Trying again in 2.0 s, attempt 2 of 4…");
  expect(describePhase({ phase: "model_fallback" })).toMatch(/another model/);
  expect(describePhase({ phase: "newer" as "model_fallback" })).toBe("");
});
