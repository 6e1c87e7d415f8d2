// @vitest-environment node
import { expect, test } from "vitest";

import { ProblemError } from "../api";
import type { ConversationSnapshot } from "../api";
import { describeConnection, sayCompaction } from "./status";

const snapshot = (changes: Partial<ConversationSnapshot>): ConversationSnapshot => ({ state: null, connection: "live", toolProgress: new Map(), ...changes });

test("a connection that works is not spoken of", () => {
  expect(describeConnection(snapshot({}))).toBe("");
  expect(describeConnection(snapshot({ connection: "connecting" }))).toBe("");
});

test("a broken connection and being offline are told apart", () => {
  expect(describeConnection(snapshot({ connection: "reconnecting" }))).toMatch(/again/);
  expect(describeConnection(snapshot({ connection: "offline" }))).toMatch(/offline/);
});

test("a window that waits for others says so", () => {
  expect(describeConnection(snapshot({ connection: "waiting" }))).toMatch(/Other windows/);
});

test("a refusal is told in the server's words", () => {
  const problem = new ProblemError({ type: "urn:everturn:problem:not-found", title: "Not found", status: 404, detail: "There is no such conversation." });

  expect(describeConnection(snapshot({ connection: "refused", problem }))).toContain("There is no such conversation.");
});

test("a summary is told while it is made and with what it saved", () => {
  const notice = { status: "completed" as const, reason: "size", before_tokens: 90_000, after_tokens: 12_000 };

  expect(sayCompaction(notice)).toBe("Older parts were summarized: 12,000 tokens instead of 90,000.");
  expect(sayCompaction({ ...notice, status: "skipped" })).toBe("");
});
