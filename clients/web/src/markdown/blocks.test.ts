// @vitest-environment node
import { expect, test } from "vitest";

import { isTooCostly, readDetails, splitBlocks, withoutIncompleteTable } from "./blocks";

test("a blank line separates paragraphs into blocks", () => {
  expect(splitBlocks("one\nstill one\n\ntwo\n")).toEqual(["one\nstill one\n\n", "two\n"]);
});

test("the blocks of a text without definitions add up to the text", () => {
  const text = "# Title\nwords\n\n- a\n\n- b\n  more\n\n```py\nx = 1\n\ny = 2\n```\nafter\n\n| a |\n| - |\n| 1 |";

  expect(splitBlocks(text).join("")).toBe(text);
});

test("a blank line inside a fence does not split it", () => {
  const text = "```py\na\n\nb\n```\n";

  expect(splitBlocks(text)).toEqual([text]);
});

test("an open fence is one block up to the end", () => {
  expect(splitBlocks("words\n\n```\na\n\nb\n\n# no heading")).toHaveLength(2);
});

test("a longer fence is not closed by a shorter one", () => {
  expect(splitBlocks("````\n```\n\nx\n````\n\nafter")).toEqual(["````\n```\n\nx\n````\n\n", "after"]);
});

test("a list with blank lines between its items stays one block", () => {
  expect(splitBlocks("1. a\n\n2. b\n\n   more of b\n\n3. c\n\nafter")).toEqual(["1. a\n\n2. b\n\n   more of b\n\n3. c\n\n", "after"]);
});

test("a very long list is split between two items", () => {
  const text = Array.from({ length: 2000 }, (_, at) => `${at + 1}. item number ${at + 1}\n`).join("");
  const blocks = splitBlocks(text);

  expect(blocks.length).toBeGreaterThan(2);
  expect(Math.max(...blocks.map((block) => block.length))).toBeLessThan(9_000);
  expect(blocks.every((block) => /^\d+\. /.test(block))).toBe(true);
});

test("a heading begins a block without a blank line before it", () => {
  expect(splitBlocks("words\n## Next\nmore")).toEqual(["words\n", "## Next\nmore"]);
});

test("appended text changes only the last block", () => {
  const text = "# A\n\nfirst\n\n- a\n- b\n\n```js\nlet x;\n```\n\nlast words";
  for (let end = 1; end < text.length; end += 1) {
    const before = splitBlocks(text.slice(0, end));
    const after = splitBlocks(text.slice(0, end + 1));
    expect(after.slice(0, before.length - 1)).toEqual(before.slice(0, -1));
  }
});

test("a definition at the end resolves the links of earlier blocks", () => {
  const [first] = splitBlocks("see [this][1]\n\nwords\n\n[1]: https://example.org\n");

  expect(first).toContain("[1]: https://example.org");
});

test("a block gets the definitions that it names, and no others", () => {
  const versions = Array.from({ length: 300 }, (_, at) => at);
  const addresses = versions.map((at) => `[1.${at}]: https://example.org/project/compare/v1.${at}...v1.${at + 1}`).join("\n");
  const text = `${versions.map((at) => `## [1.${at}]\n\n- [Fixed  IT]\n`).join("\n")}\n${addresses}\n[fixed it]: https://example.org/it\n`;
  const blocks = splitBlocks(text);

  expect(blocks[0]).toContain("\n\n[1.0]: https://example.org/project/compare/v1.0...v1.1");
  expect(blocks[0]).not.toContain("[1.1]:");
  expect(blocks[1]).toContain("[fixed it]: https://example.org/it");
  expect(blocks.join("").length).toBeLessThan(3 * text.length);
});

test("blocks that all name one long address are kept as one block", () => {
  const text = `${"[a]\n\n".repeat(2_000)}[a]: https://example.org/${"x".repeat(10_000)}\n`;

  expect(splitBlocks(text)).toEqual([text]);
});

test("a text with footnotes is not split, because they are numbered throughout", () => {
  expect(splitBlocks("a[^1]\n\nb\n\n[^1]: note")).toHaveLength(1);
});

test.each([
  ["words\n\n| reg", "words\n\n"],
  ["words\n\n| region | rows |\n", "words\n\n"],
  ["words\n| region | rows |\n| --", "words\n"],
  ["| region |\n| - ", ""],
  ["|", ""],
])("a line that may become a table is held back: %j", (text, shown) => {
  expect(withoutIncompleteTable(text)).toBe(shown);
});

test.each([
  "words\n\n",
  "| region |\n| --- |\n",
  "| region |\n| --- |\n| nor",
  "| region |\n| --- |\n| - |\n| -",
  "| no table\n| but words",
  "| no table\n\n",
  "| no table\nafter",
  "a | b",
  "```\n| code |",
  "    | code",
  `| ${"long ".repeat(250)}`,
])("a line that is no table header, or already a table, is shown at once: %j", (text) => {
  expect(withoutIncompleteTable(text)).toBe(text);
});

test.each(["    ```\n", "\t~~~\n", "\u00a0```\n", "~~~\rcode\r~~~\r", "~~~\r\ncode\r\n~~~\r\n"])("%j does not begin a fence that includes what follows", (opening) => {
  const blocks = splitBlocks(opening + "*a_ ".repeat(10_000));

  expect(blocks.every((block) => block.length < 100 || isTooCostly(block))).toBe(true);
});

test("a long fence is shown as code", () => {
  expect(isTooCostly(`\`\`\`\n${"*a_ ".repeat(10_000)}\n\`\`\`\n`)).toBe(false);
});

test("long definitions that every block names add at most their own length", () => {
  const build = (chars: number) => {
    const definitions = ["a", "b"].map((label) => `[${label}]: https://example.org/${label.repeat(chars)}\n`);
    return `${definitions.join("")}\n${"[x][a] [y][b]\n\n".repeat(chars / 8)}`;
  };
  const measure = (text: string) => Math.min(...[1, 2, 3, 4, 5, 6, 7].map(() => {
    const begun = performance.now();
    splitBlocks(text);
    return performance.now() - begun;
  }));

  // Quadratic work would make the ratio 16.
  expect(measure(build(40_000)) / Math.max(1, measure(build(10_000)))).toBeLessThan(10);
});

const FOLDED = "before\n<details>\n<summary>More</summary>\n\n- a\n\n```\n</details>\n\n```\n\n<details open><summary>Inner</summary>\n\ninner\n</details>\n\n</details>\nafter\n\nlast";

test("details are one block with their content, including code and other details", () => {
  const blocks = splitBlocks(FOLDED);

  expect(blocks.join("")).toBe(FOLDED);
  expect(blocks.map((block) => block.slice(0, 9))).toEqual(["before\n", "<details>", "after\n\n", "last"]);
  expect(readDetails(blocks[1] ?? "")).toEqual({
    summary: "More",
    body: "- a\n\n```\n</details>\n\n```\n\n<details open><summary>Inner</summary>\n\ninner\n</details>\n\n\n",
    isOpen: false,
  });
});

test("growing details are one block up to the end and keep the blocks before them", () => {
  for (let end = 1; end < FOLDED.length; end += 1) {
    const before = splitBlocks(FOLDED.slice(0, end), true);
    const after = splitBlocks(FOLDED.slice(0, end + 1), true);
    expect(after.slice(0, before.length - 1)).toEqual(before.slice(0, -1));
  }
  expect(splitBlocks("<details>\n\none\n\ntwo", true)).toHaveLength(1);
});

test.each(["<details>\n\none\n\ntwo", "<details onclick=x>\n\none\n\n</details>", "    <details>\n\none\n\n    </details>", "`<details>`\n\none\n\n</details>", "<details> is a tag.\n\n</details>", "<details>\n  ```\n</details>\n  ```\n\nafter"])("unclosed or invalid details are split like other text: %j", (text) => {
  const blocks = splitBlocks(text);

  expect(blocks.length).toBeGreaterThan(1);
  expect(blocks.map((block) => readDetails(block))).toEqual(blocks.map(() => null));
});

test("an unclosed summary is text, or in a growing block the summary so far", () => {
  expect(readDetails("<details>\n<summary>More\n\nwords\n</details>")).toEqual({ summary: "", body: "<summary>More\n\nwords\n", isOpen: false });
  expect(readDetails("<details><summary>Mo", true)).toEqual({ summary: "Mo", body: "", isOpen: false });
});

test("nested growing details end at their own end tags", () => {
  const text = "<details>\n\n<details>\n\ninner\n</details>\n\nouter\n\n<details id=x>no</details>\n\nouter too";
  const body = readDetails(text, true)?.body ?? "";

  expect(splitBlocks(body, true)).toEqual(["<details>\n\ninner\n</details>\n\n", "outer\n\n", "<details id=x>no</details>\n\n", "outer too"]);
});

test("a link in details finds its definition outside of them", () => {
  const [folded] = splitBlocks("<details>\n\nsee [this][1]\n\n</details>\n\n[1]: https://example.org\n");

  expect(readDetails(folded ?? "")?.body).toContain("[1]: https://example.org");
});

test.each(["<details>\n", "<details>\n</details>\n"])("splitting many details takes linear time: %j", (sign) => {
  const measure = (count: number) => {
    const text = sign.repeat(count);
    return Math.min(...[1, 2, 3, 4, 5, 6, 7].map(() => {
      const begun = performance.now();
      for (const isGrowing of [false, true]) splitBlocks(text, isGrowing);
      return performance.now() - begun;
    }));
  };

  // Quadratic work would make the ratio 64.
  expect(measure(128_000) / Math.max(1, measure(16_000))).toBeLessThan(40);
});
