import { expect, test } from "vitest";

import { MemoryStorage, replaceStorage } from "./memoryStorage";

test("a page without storage keeps what it stores for as long as it lives", () => {
  const page = { get localStorage(): Storage { throw new DOMException("denied", "SecurityError"); } } as unknown as Window;
  replaceStorage(Object.defineProperty(page, "localStorage", { configurable: true }));
  page.localStorage.setItem("a", "1");
  page.localStorage.setItem("b", "2");
  page.localStorage.removeItem("a");

  expect([page.localStorage.length, page.localStorage.key(0), page.localStorage.getItem("a"), page.localStorage.getItem("b")]).toEqual([1, "b", null, "2"]);
  expect(page.sessionStorage).toBeInstanceOf(MemoryStorage);
  expect(page.sessionStorage).toHaveLength(0);
});
