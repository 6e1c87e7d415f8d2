import { beforeEach, expect, test } from "vitest";

import { loadDraft, saveDraft } from "./drafts";

beforeEach(() => { sessionStorage.clear(); });

test("each conversation has a draft of its own", () => {
  saveDraft(sessionStorage, "a", "first");
  saveDraft(sessionStorage, "b", "second");

  expect([loadDraft(sessionStorage, "a"), loadDraft(sessionStorage, "b"), loadDraft(sessionStorage, "c")]).toEqual(["first", "second", ""]);
});

test("an empty draft leaves nothing behind", () => {
  saveDraft(sessionStorage, "a", "first");
  saveDraft(sessionStorage, "a", "");

  expect(sessionStorage).toHaveLength(0);
});

test("a draft that the storage has no room for is not kept, and nothing breaks", () => {
  saveDraft(sessionStorage, "a", "x".repeat(200_001));

  expect(loadDraft(sessionStorage, "a")).toBe("");
});
