// @vitest-environment node
import { expect, test } from "vitest";

import type { ConversationView } from "../api";
import { joinPages, isOldNews, markFailureSeen, nameFork, nameOf, sayState } from "./pages";

const conversation = (conversation_id: string, title = ""): ConversationView => ({
  conversation_id,
  title,
  state: "idle",
  archived: false,
  created_at: "",
  last_activity_at: "",
});

test("a conversation that is on two pages is listed once, as it was read last", () => {
  const joined = joinPages([
    { items: [conversation("a"), conversation("b", "old")], next_cursor: "x" },
    { items: [conversation("b", "new"), conversation("c")] },
  ]);

  expect(joined.map(({ conversation_id, title }) => `${conversation_id}${title}`)).toEqual(["a", "bnew", "c"]);
});

test("a conversation without a title has a name all the same", () => {
  expect(nameOf(conversation("a", " "))).toBe("New conversation");
  expect(nameOf(conversation("a", " "), "Compare the north")).toBe("Compare the north");
  expect(nameOf(conversation("a", "Sales"), "Compare the north")).toBe("Sales");
});

test("only what goes on is said", () => {
  expect([sayState("idle"), sayState("waiting")]).toEqual(["", "needs approval"]);
});

test("the title of a fork says that it is one, once, and fits", () => {
  expect(nameFork("Sales")).toBe("Sales (fork)");
  expect(nameFork(nameFork("Sales"))).toBe("Sales (fork)");
  expect(nameFork("x".repeat(300))).toHaveLength(200);
});

test("a failure is news until it was seen, and for an hour", () => {
  const at = "2026-03-01T10:00:00Z";
  const now = Date.parse(at) + 60_000;

  expect(isOldNews("conv_f", at, now)).toBe(false);
  expect(isOldNews("conv_f", at, now + 3_600_000)).toBe(true);
  markFailureSeen("conv_f", at);
  expect(isOldNews("conv_f", at, now)).toBe(true);
  expect(isOldNews("conv_f", "2026-03-01T10:00:30Z", now)).toBe(false);
});
