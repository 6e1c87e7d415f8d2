import { beforeEach, expect, test } from "vitest";

import { forgetDrafts, loadDraft, saveDraft } from "./drafts";

const scope = { tenant: "acme", project: "one" };
const elsewhere = { tenant: "acme", project: "one/two" };

beforeEach(() => { sessionStorage.clear(); });

test("each conversation has its own draft, and each project one for the next conversation", () => {
  saveDraft(sessionStorage, scope, "a", "first");
  saveDraft(sessionStorage, scope, "b", "second");

  expect(["a", "b", "c"].map((id) => loadDraft(sessionStorage, scope, id))).toEqual(["first", "second", ""]);
  expect(loadDraft(sessionStorage, elsewhere, "a")).toBe("");
});

test("an empty draft leaves nothing behind", () => {
  saveDraft(sessionStorage, scope, "a", "first");
  saveDraft(sessionStorage, scope, "a", "");

  expect(sessionStorage).toHaveLength(0);
});

test("a draft that does not fit into the storage is not kept", () => {
  saveDraft(sessionStorage, scope, "a", "x".repeat(200_001));

  expect(loadDraft(sessionStorage, scope, "a")).toBe("");
});

test("all drafts of a project are removed, and nothing else", () => {
  sessionStorage.setItem("else", "kept");
  for (const id of ["a", "b", "c"]) saveDraft(sessionStorage, scope, id, "text");
  saveDraft(sessionStorage, elsewhere, "a", "other");

  forgetDrafts(sessionStorage, scope);

  expect(sessionStorage).toHaveLength(2);
  expect(loadDraft(sessionStorage, elsewhere, "a")).toBe("other");
});
