// @vitest-environment node
import { expect, test } from "vitest";

import type { ContextSegment } from "../api";
import { nameSegment, sumByCache } from "./cache";

const segment = (changes: Partial<ContextSegment>): ContextSegment => ({
  index: 0,
  origin: "block",
  chars: 40,
  tokens: 10,
  sha256: "",
  cache_point: false,
  cache: "none",
  ...changes,
});

test("tokens are summed by what the cache could do, in the order of a request", () => {
  const sums = sumByCache([segment({ cache: "read" }), segment({ cache: "none", tokens: 3 }), segment({ cache: "read", tokens: 5 })]);

  expect(sums).toEqual([{ cache: "read", tokens: 15 }, { cache: "none", tokens: 3 }]);
});

test("a part is called by where it comes from and its ref", () => {
  expect(nameSegment(segment({ origin: "system" }))).toBe("Instructions");
  expect(nameSegment(segment({ ref: "ar:turn_1.answer" }))).toBe("Block ar:turn_1.answer");
});
