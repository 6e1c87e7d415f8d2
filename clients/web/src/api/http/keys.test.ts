// @vitest-environment node
import { expect, test, vi } from "vitest";

import { makeKey } from "./keys";

test("keys are long and unique, also without randomUUID", () => {
  vi.stubGlobal("crypto", { getRandomValues: crypto.getRandomValues.bind(crypto) });
  const keys = Array.from({ length: 100 }, makeKey);
  vi.unstubAllGlobals();

  expect(new Set(keys).size).toBe(100);
  expect(keys.every((key) => /^[0-9a-f]{32}$/.test(key))).toBe(true);
});
