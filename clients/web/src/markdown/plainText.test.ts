// @vitest-environment node
import { expect, test } from "vitest";

import { toPlainText } from "./plainText";

test.each([
  ["## Totals\n\n**North** sold `most`.[[S:1,2]]", "Totals North sold most."],
  ["| a | b |\n|---|---:|\n| 1 | 2 |", "a b 1 2"],
  ["> see [the page](https://example.org/1)", "see the page"],
  ["2 - 1 | snake_case", "2 - 1 snake_case"],
])("%j becomes %j", (text, said) => {
  expect(toPlainText(text)).toBe(said);
});

test("tags of details are removed", () => {
  expect(toPlainText("<details>\n<summary>More</summary>\n\nwords\n</details>")).toBe("More words");
});

test("inline HTML that the page renders is removed", () => {
  expect(toPlainText("One<br>two, H<sub>2</sub>O and <kbd>Ctrl</kbd>, but List<String>")).toBe("One two, H2O and Ctrl, but List<String>");
});
