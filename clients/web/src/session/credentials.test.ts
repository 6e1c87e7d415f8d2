import { beforeEach, expect, test } from "vitest";

import { MAX_CHARS, forgetCredential, loadCredential, readCredential, saveCredential } from "./credentials";

const scope = { tenant: "acme", project: "one" };

beforeEach(() => { sessionStorage.clear(); });

test("a credential belongs to its tenant and project", () => {
  saveCredential(sessionStorage, scope, "evk_1");

  expect(loadCredential(sessionStorage, scope)).toBe("evk_1");
  expect(loadCredential(sessionStorage, { ...scope, project: "two" })).toBeUndefined();
});

test("a removed credential leaves nothing behind", () => {
  saveCredential(sessionStorage, scope, "evk_1");
  forgetCredential(sessionStorage, scope);

  expect(sessionStorage).toHaveLength(0);
});

test.each([
  [" evk_abc\n", "evk_abc"],
  ["Bearer eyJ.a.b", "eyJ.a.b"],
  ["Authorization: Bearer eyJ.a.b", "eyJ.a.b"],
])("%j is read as the credential %j", (pasted, credential) => {
  expect(readCredential(pasted)).toBe(credential);
});

test.each(["", "two words", "ключ", "x".repeat(MAX_CHARS + 1)])("text that cannot be a credential is rejected: %.20s", (pasted) => {
  expect(readCredential(pasted)).toBeNull();
});
