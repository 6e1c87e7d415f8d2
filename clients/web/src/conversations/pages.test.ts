// @vitest-environment node
import { expect, test } from "vitest";

import type { ConversationView } from "../api";
import { buildConversation } from "../testing/builders";
import { joinPages, isStaleFailure, markFailureSeen, nameFork, describeState } from "./pages";

const conversation = (conversation_id: string, title = ""): ConversationView => buildConversation({ conversation_id, title });

test("a conversation on two pages is listed once, as last read", () => {
  const joined = joinPages([
    { items: [conversation("a"), conversation("b", "old")], next_cursor: "x" },
    { items: [conversation("b", "new"), conversation("c")] },
  ]);

  expect(joined.map(({ conversation_id, title }) => `${conversation_id}${title}`)).toEqual(["a", "bnew", "c"]);
});

test("only active states are described", () => {
  expect([describeState("idle"), describeState("waiting")]).toEqual(["", "needs approval"]);
});

test("the title of a fork is marked once, and fits", () => {
  expect(nameFork("Sales")).toBe("Sales (fork)");
  expect(nameFork(nameFork("Sales"))).toBe("Sales (fork)");
  expect(nameFork("x".repeat(300))).toHaveLength(200);
});

test("a failure is news for an hour, or until it is seen", () => {
  const at = "2026-03-01T10:00:00Z";
  const now = Date.parse(at) + 60_000;

  expect(isStaleFailure("conv_f", at, now)).toBe(false);
  expect(isStaleFailure("conv_f", at, now + 3_600_000)).toBe(true);
  markFailureSeen("conv_f", at);
  expect(isStaleFailure("conv_f", at, now)).toBe(true);
  expect(isStaleFailure("conv_f", "2026-03-01T10:00:30Z", now)).toBe(false);
});
