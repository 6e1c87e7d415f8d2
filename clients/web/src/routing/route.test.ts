// @vitest-environment node
import { expect, test } from "vitest";

import { DEFAULT_SCOPE, readRoute, writeRoute } from "./route";

const acme = { tenant: "acme", project: "über uns" };

test.each([
  { scope: DEFAULT_SCOPE, conversationId: null, turnId: null },
  { scope: DEFAULT_SCOPE, conversationId: "conv_1", turnId: null },
  { scope: DEFAULT_SCOPE, conversationId: "conv_1", turnId: "turn_1" },
  { scope: acme, conversationId: null, turnId: null },
  { scope: acme, conversationId: "conv_1", turnId: null },
  { scope: { tenant: "a/b?turn=x", project: "c&d" }, conversationId: "conv_1", turnId: "turn_1" },
])("a route survives writing and reading: %j", (route) => {
  expect(readRoute(writeRoute(route))).toEqual(route);
});

test("a conversation of the default project has a short address", () => {
  expect(writeRoute({ scope: DEFAULT_SCOPE, conversationId: "conv_1", turnId: null })).toBe("#/conv_1");
  expect(writeRoute({ scope: DEFAULT_SCOPE, conversationId: "conv_1", turnId: "turn_1" })).toBe("#/conv_1?turn=turn_1");
});

test.each(["", "#", "#/", "#/%E0%A4%A", "#/?turn=turn_1"])("%j is the start page", (fragment) => {
  expect(readRoute(fragment)).toEqual({ scope: DEFAULT_SCOPE, conversationId: null, turnId: null });
});
