import { beforeEach, expect, test } from "vitest";

import { chooseTheme, loadTheme, readTheme } from "./theme";

beforeEach(() => { localStorage.clear(); });

test("without a choice the theme follows the system", () => {
  expect([readTheme(null, true), readTheme("odd", false)]).toEqual(["dark", "light"]);
});

test("a choice that differs from the system is stored", () => {
  chooseTheme(localStorage, "light", true);

  expect(readTheme(loadTheme(localStorage), true)).toBe("light");
});

test("choosing the system's theme follows the system again", () => {
  chooseTheme(localStorage, "light", true);
  chooseTheme(localStorage, "dark", true);

  expect(readTheme(loadTheme(localStorage), false)).toBe("light");
});
