import { beforeEach, expect, test } from "vitest";

import { loadAttempt, saveAttempt } from "./attempts";
import { forgetDrafts, loadDraft } from "./drafts";

const scope = { tenant: "acme", project: "one" };

beforeEach(() => { sessionStorage.clear(); });

test("an attempt is stored beside the draft until its response is known", () => {
  const attempt = { text: "hello", kind: "steer", key: "k1" } as const;

  saveAttempt(sessionStorage, scope, "new", attempt);
  expect(loadAttempt(sessionStorage, scope, "new")).toEqual(attempt);
  expect([loadAttempt(sessionStorage, scope, "conv_1"), loadDraft(sessionStorage, scope, "new")]).toEqual([null, ""]);
  saveAttempt(sessionStorage, scope, "new", null);

  expect(sessionStorage).toHaveLength(0);
});

test("an attempt is removed with the drafts, and other stored text is ignored", () => {
  saveAttempt(sessionStorage, scope, "new", { text: "hello", key: "k1" });
  forgetDrafts(sessionStorage, scope);
  expect(sessionStorage).toHaveLength(0);

  for (const other of ["{", "[]", '{"text": 1}']) {
    sessionStorage.setItem("everturn.draft.acme/one/new/attempt", other);
    expect(loadAttempt(sessionStorage, scope, "new")).toBeNull();
  }
});
