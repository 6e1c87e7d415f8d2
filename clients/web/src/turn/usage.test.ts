// @vitest-environment node
import { expect, test } from "vitest";

import { buildTurn } from "../testing/builders";
import { describeUsage } from "./usage";

test("the cost of a turn is shown", () => {
  const usage = { input_tokens: 2000, output_tokens: 500, cache_read_tokens: 1000, cost_usd: 0.0123, cost_known: true };

  expect(describeUsage(buildTurn({ rounds: 2, elapsed_ms: 4100, usage }))).toBe("2 rounds · 4.1 s · 2,500 tokens · 50% of the input cached · $0.0123");
});

test("a model without a price does not appear free", () => {
  const usage = { input_tokens: 2000, output_tokens: 500, cache_read_tokens: 0, cost_usd: 0, cost_known: false };

  expect(describeUsage(buildTurn({ usage }))).toBe("1 round · 2,500 tokens · price unknown");
  expect(describeUsage(buildTurn({ usage: { ...usage, cost_usd: 0.5 } }))).toBe("1 round · 2,500 tokens · at least $0.50");
});

test("unknown figures are left out", () => {
  expect(describeUsage(buildTurn())).toBe("1 round");
});
