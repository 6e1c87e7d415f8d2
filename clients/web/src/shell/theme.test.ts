import { beforeEach, expect, test } from "vitest";

import { chooseTheme, loadTheme, readTheme } from "./theme";

beforeEach(() => { localStorage.clear(); });

test("without a choice the page is as the system", () => {
  expect([readTheme(null, true), readTheme("odd", false)]).toEqual(["dark", "light"]);
});

test("a choice against the system is kept", () => {
  chooseTheme(localStorage, "light", true);

  expect(readTheme(loadTheme(localStorage), true)).toBe("light");
});

test("a choice that is the system's own follows the system again", () => {
  chooseTheme(localStorage, "light", true);
  chooseTheme(localStorage, "dark", true);

  expect(readTheme(loadTheme(localStorage), false)).toBe("light");
});
