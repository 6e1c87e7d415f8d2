// @vitest-environment node
import { expect, test } from "vitest";

import type { ContextSegment } from "../api";
import { buildStep, buildTurn } from "../testing/builders";
import { findToolNames, nameSegment, sumByCache } from "./cache";

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

test("tokens are summed by cache state, in the order of a request", () => {
  const sums = sumByCache([segment({ cache: "read" }), segment({ cache: "none", tokens: 3 }), segment({ cache: "read", tokens: 5 })]);

  expect(sums).toEqual([{ cache: "read", tokens: 15 }, { cache: "none", tokens: 3 }]);
});

test("a part is named by its origin and its ref", () => {
  const name = (changes: Partial<ContextSegment>) => nameSegment(segment(changes), "turn_1", new Map());

  expect(name({ origin: "system" })).toBe("Instructions");
  expect(name({ ref: "ar:turn_1.user.prompt" })).toBe("Your message");
  expect(name({ ref: "ar:turn_0.assistant.completion.2" })).toBe("Answer.2 (earlier)");
  expect(name({ ref: "ar:turn_1.react.plan.plan_01a214c2-feca-7eb1-bcdc-d388f95be216" })).toBe("Plan");
  expect(name({ ref: "xy:public.charts" })).toBe("Entry xy:public.charts");
});

test("a call and its result are named by their tool", () => {
  const id = "call_01a214c2-feca-7eb1-bcdc-d388f95be216";
  const turn = buildTurn({ steps: [buildStep({ step: id, tool_id: "mail.send" })] });
  const name = (place: string, tools = findToolNames([turn])) => nameSegment(segment({ ref: `tc:turn_1.${id}.${place}` }), "turn_1", tools);

  expect(name("call")).toBe("Call of mail.send");
  expect(name("result")).toBe("Result of mail.send");
  expect(name("result", new Map())).toBe("Result of tool call …5be216");
});
