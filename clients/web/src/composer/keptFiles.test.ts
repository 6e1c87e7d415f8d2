// @vitest-environment node
import { expect, test } from "vitest";

import { MAX_KEPT, keepFiles } from "./keptFiles";
import type { KeptFiles } from "./keptFiles";

const file = new File(["x"], "a.csv");

test("without files nothing is kept", () => {
  const kept: KeptFiles = new Map();
  keepFiles(kept, "conv_1", [file]);
  expect(kept.get("conv_1")).toEqual([file]);
  keepFiles(kept, "conv_1", []);

  expect(kept.size).toBe(0);
});

test("the files of the conversation that was left alone for longest are let go", () => {
  const kept: KeptFiles = new Map();
  for (let number = 0; number < MAX_KEPT; number += 1) keepFiles(kept, `conv_${number}`, [file]);
  keepFiles(kept, "conv_0", [file, file]);
  keepFiles(kept, "conv_new", [file]);

  expect(kept.size).toBe(MAX_KEPT);
  expect([kept.has("conv_0"), kept.has("conv_1"), kept.has("conv_new")]).toEqual([true, false, true]);
});
