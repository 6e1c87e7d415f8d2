// @vitest-environment node
import { expect, test } from "vitest";

import type { ConversationView } from "../api";
import { joinPages, nameOf, sayState } from "./pages";

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
  expect([sayState("idle"), sayState("waiting")]).toEqual(["", "waits for you"]);
});
