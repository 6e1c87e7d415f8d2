// @vitest-environment node
import { expect, test } from "vitest";

import { MAX_CONVERSATIONS, saveUnsentFiles } from "./unsentFiles";
import type { UnsentFiles } from "./unsentFiles";

const file = new File(["x"], "a.csv");

test("without files nothing is kept", () => {
  const kept: UnsentFiles = new Map();
  saveUnsentFiles(kept, "conv_1", [file]);
  expect(kept.get("conv_1")).toEqual([file]);
  saveUnsentFiles(kept, "conv_1", []);

  expect(kept.size).toBe(0);
});

test("the files of the least recently changed conversation are dropped", () => {
  const kept: UnsentFiles = new Map();
  for (let number = 0; number < MAX_CONVERSATIONS; number += 1) saveUnsentFiles(kept, `conv_${number}`, [file]);
  saveUnsentFiles(kept, "conv_0", [file, file]);
  saveUnsentFiles(kept, "conv_new", [file]);

  expect(kept.size).toBe(MAX_CONVERSATIONS);
  expect([kept.has("conv_0"), kept.has("conv_1"), kept.has("conv_new")]).toEqual([true, false, true]);
});
