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
  expect(nameSegment(segment({ origin: "system" }), "turn_1")).toBe("Instructions");
  expect(nameSegment(segment({ ref: "ar:turn_1.user.prompt" }), "turn_1")).toBe("Your message");
  expect(nameSegment(segment({ ref: "ar:turn_0.assistant.completion.2" }), "turn_1")).toBe("Answer.2 (earlier)");
  expect(nameSegment(segment({ ref: "tc:turn_1.call_3.result" }), "turn_1")).toBe("Tool call call_3.result");
  expect(nameSegment(segment({ ref: "sk:public.charts" }), "turn_1")).toBe("Entry sk:public.charts");
});
