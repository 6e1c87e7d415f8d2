// @vitest-environment node
import { expect, test } from "vitest";

import { cutSnippet } from "./snippets";

/** The snippet in one line, with its matches in brackets. */
const show = (snippet: string, query: string): string => cutSnippet(snippet, query).map(({ text, isHit }) => (isHit ? `[${text}]` : text)).join("");

test.each([
  ["The harbour of Bergen sold most.", "harbour most", "The [harbour] of Bergen sold [most]."],
  ["Harbours are no harbour.", "harbour", "Harbours are no [harbour]."],
  ["CAFÉ, café and cafe\u0301", "cafe", "[CAFÉ], [café] and [cafe\u0301]"],
  ["die Straße", "STRASSE", "die [Straße]"],
  ["snake_case", "case", "snake_[case]"],
  ["東京タワーに行く", "タワー", "東京[タワー]に行く"],
  ["a (b) [c]", "(b", "a ([b]) [c]"],
  ["nothing of it", "?!", "nothing of it"],
])("in %j, the query %j matches %j", (snippet, query, shown) => {
  expect(show(snippet, query)).toBe(shown);
});

test("Markdown syntax and line breaks are removed", () => {
  const answer = "## Totals\n\n**North** sold `most`, see [the page](https://example.org/1).[[S:1,2]]\n\n| a | b |\n|---|---:|\n| 1 | 2 |";

  expect(show(answer, "north")).toBe("Totals [North] sold most, see the page. a b 1 2");
});

test("a long text is cut around its first match, between words", () => {
  const shown = show(`${"before ".repeat(60)}harbour ${"after ".repeat(60)}`, "harbour");

  expect(shown).toMatch(/^…(before )+\[harbour\]( after)+…$/);
  expect(shown.length).toBeLessThan(150);
});

test("a text without blanks is cut as well", () => {
  const pieces = cutSnippet(`${"x".repeat(500)} harbour`, "harbour");

  expect(pieces).toEqual([{ text: "…", isHit: false }, { text: "harbour", isHit: true }]);
  expect(show("y".repeat(500), "harbour")).toHaveLength(141);
});
