// @vitest-environment node
import { expect, test } from "vitest";

import { withoutSigns } from "./withoutSigns";

test.each([
  ["## Totals\n\n**North** sold `most`.[[S:1,2]]", "Totals North sold most."],
  ["| a | b |\n|---|---:|\n| 1 | 2 |", "a b 1 2"],
  ["> see [the page](https://example.org/1)", "see the page"],
  ["2 - 1 | snake_case", "2 - 1 snake_case"],
])("%j is said as %j", (text, said) => {
  expect(withoutSigns(text)).toBe(said);
});

test("tags of what is folded away are not read out", () => {
  expect(withoutSigns("<details>\n<summary>More</summary>\n\nwords\n</details>")).toBe("More words");
});

test("bits of HTML that are drawn are not read out", () => {
  expect(withoutSigns("One<br>two, H<sub>2</sub>O and <kbd>Ctrl</kbd>, but List<String>")).toBe("One two, H2O and Ctrl, but List<String>");
});
