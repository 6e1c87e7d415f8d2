import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";

import { isTooCostly, splitBlocks } from "./blocks";
import { Markdown } from "./Markdown";
import { parse } from "./parseCache";
import { ReferencesContext, buildReferences } from "./references";

const HOSTILE = [
  "<script>window.hacked = 1</script>",
  "<img src=x onerror='window.hacked = 1'>",
  "[click](javascript:window.hacked=1)",
  "[click](JAVASCRIPT&colon;window.hacked=1)",
  "<javascript:window.hacked=1>",
  "![x](javascript:window.hacked=1)",
  "![pixel](https://tracker.example/pixel.png)",
  "![svg](data:image/svg+xml;base64,PHN2Zz48L3N2Zz4=)",
  "[data](data:text/html,<script>window.hacked=1</script>)",
  "<iframe src='https://example.org'></iframe>",
  "<a href='https://example.org' onclick='window.hacked = 1'>a</a>",
  "<details open ontoggle='window.hacked = 1'>\n\nx\n\n</details>",
  "<details>\n<summary><img src=x onerror='window.hacked = 1'></summary>\n\n<iframe src='https://example.org'></iframe>\n\n</details>",
  "[ref]: javascript:window.hacked=1\n\n[ref]",
  "| a |\n| - |\n| <svg onload='window.hacked=1'> |",
  "```html\n<script>window.hacked = 1</script>\n```",
];

test.each(HOSTILE)("hostile Markdown stays text: %s", (text) => {
  const { container } = render(<Markdown text={text} />);

  expect(container.querySelectorAll("script, iframe, object, embed, svg[onload], form, style, link, meta, base")).toHaveLength(0);
  expect([...container.querySelectorAll("*")].flatMap((element) => element.getAttributeNames()).filter((name) => name.startsWith("on"))).toEqual([]);
  for (const link of container.querySelectorAll("a")) expect(link.protocol).toMatch(/^(?:https?|mailto):$/);
  expect(container.querySelectorAll("img")).toHaveLength(0);
});

test("direction overrides are shown, characters that languages need are kept", () => {
  const kept = "\u200f\u05d0\u2067b\u2069\u200d";
  const { container } = render(<Markdown text={`Pay \u202e**001\u202d** \`a\u202e\` ${kept} ![b\u202e](x)\n\n<details><summary>c\u202e</summary>\n\nd\u202e\n\n</details>`} />);

  expect(container.textContent).toBe(`Pay \\u{202e}001\\u{202d} a\\u{202e} ${kept} b\\u{202e}c\\u{202e}d\\u{202e}`);
});

test("code shows all direction controls and is copied unchanged", async () => {
  const user = userEvent.setup();
  const code = "if a: \u2066# \u202e\u2069x";
  const { container } = render(<Markdown text={`\`\`\`\n${code}\n\`\`\``} />);

  await user.click(screen.getByRole("button", { name: "Copy code" }));

  expect(container.querySelector("pre")).toHaveTextContent("if a: \\u{2066}# \\u{202e}\\u{2069}x");
  expect(await navigator.clipboard.readText()).toBe(code);
});

test("a link opens in another tab and sends no referrer", () => {
  render(<Markdown text="[docs](https://example.org/a)" />);

  const link = screen.getByRole("link", { name: "docs" });
  expect(link).toHaveAttribute("target", "_blank");
  expect(link).toHaveAttribute("rel", "noopener noreferrer");
});

test("an image on the web becomes a link that names its host", () => {
  render(<Markdown text="![a chart](https://pictures.example/x.png)" />);

  expect(screen.getByRole("link", { name: "Image: a chart (pictures.example)" })).toHaveAttribute("href", "https://pictures.example/x.png");
});

test("an image in a data URL is shown", () => {
  render(<Markdown text="![dot](data:image/png;base64,iVBORw0KGgo=)" />);

  expect(screen.getByRole("img", { name: "dot" })).toHaveAttribute("src", "data:image/png;base64,iVBORw0KGgo=");
});

test("a link to a cited source shows its number and title", () => {
  const references = buildReferences([{ sid: 3, title: "Annual report", url: "https://example.org/r", source_type: "web" }], []);
  render(<ReferencesContext value={references}><Markdown text="It grew. [Annual report](https://example.org/r)" /></ReferencesContext>);

  expect(screen.getByRole("link", { name: "Source 3: Annual report" })).toHaveTextContent("3");
});

test("text that grows keeps the elements of its finished blocks", () => {
  const { container, rerender } = render(<Markdown text={"first\n\nsecond"} isGrowing />);
  const first = container.querySelector("p");
  rerender(<Markdown text={"first\n\nsecond and more\n\n- third"} isGrowing />);

  expect(container.querySelector("p")).toBe(first);
  expect(screen.getByRole("listitem")).toHaveTextContent("third");
});

test.each([">".repeat(20_000), "- ".repeat(10_000), "> 1. ".repeat(5_000)])("a block that is nested too deeply is shown as plain text: %.10s", (deep) => {
  const { container } = render(<Markdown text={`**before**\n\n${deep}x`} />);

  expect(container.querySelector("strong")).toBeVisible();
  expect(container.querySelector("blockquote, ul, ol")).toBeNull();
  expect(container).toHaveTextContent(`${deep}x`.trim());
});

test("a block that is too long to parse is shown as plain text", () => {
  const { container } = render(<Markdown text={`**${"x".repeat(200_000)}**`} />);

  expect(container.querySelector("strong")).toBeNull();
  expect(container).toHaveTextContent(/^\*\*x+\*\*$/);
});

test("headings of an answer rank below those of the page", () => {
  render(<Markdown text="# Title" />);

  expect(screen.getByRole("heading", { level: 3 })).toHaveTextContent("Title");
});

test("tables, task lists and code become their elements", () => {
  render(<Markdown text={"| a |\n| - |\n| 1 |\n\n- [x] done\n\n```py\nx = 1\n```"} />);

  expect(screen.getByRole("cell")).toHaveTextContent("1");
  expect(screen.getByRole("img", { name: "done" })).toBeInTheDocument();
  expect(screen.getByRole("figure", { name: "Code, py" })).toHaveTextContent("x = 1");
});

test("the header of a growing table is hidden, until nothing more comes", () => {
  const { rerender } = render(<Markdown text={"Rows:\n\n| region | rows |\n"} isGrowing />);
  expect(screen.getByText("Rows:")).toBeVisible();
  expect(screen.queryByText(/region/)).toBeNull();

  rerender(<Markdown text={"Rows:\n\n| region | rows |\n| --- | --- |\n"} isGrowing />);
  expect(screen.getByRole("columnheader", { name: "region" })).toBeVisible();

  rerender(<Markdown text={"Rows:\n\n| region | rows |\n"} />);
  expect(screen.getByText("| region | rows |")).toBeVisible();
});

test("code without a language is labelled as text and can be copied", () => {
  render(<Markdown text={"```\nx = 1\n```"} />);

  const code = screen.getByRole("figure", { name: "Code" });
  expect(code).toHaveTextContent(/^text/);
  expect(screen.getByRole("button", { name: "Copy code" })).toBeVisible();
});

const FORMULAS = [
  "\\( a^2 \\)",
  "\\[ \\int_0^1 x_1 * y_1 * z\\,dx \\]",
  "$$a_1 + b_1 * c * d$$",
  "$$\n\\begin{aligned}\na &= b \\\\\n- c &= d\n=\n\\end{aligned}\n$$",
  "$x_1*y_2*z$",
  "\\begin{pmatrix} a_1 & b*c*d \\end{pmatrix}",
  "a\\,b\\;c \\{1\\} 5\\% \\( not closed",
  "| \\(a|b\\) |",
];

test.each(FORMULAS)("a formula stays as written: %j", (formula) => {
  const { container } = render(<Markdown text={`Before ${formula} and **after**.`} />);

  expect(container.textContent).toContain(formula);
  expect(screen.getByText("after").tagName).toBe("STRONG");
});

test("a formula in a table cell does not end the cell", () => {
  render(<Markdown text={"| a | b |\n|---|---|\n| \\(|x|\\) | 2 |"} />);

  expect(screen.getByRole("cell", { name: "\\(|x|\\)" })).toBeVisible();
});

test.each([
  ["It costs $5 and *maybe* $6.", "It costs $5 and maybe $6."],
  ["\\*no list\\* and \\_ and \\\\", "*no list* and _ and \\"],
  ["`\\(a\\)` and $HOME", "\\(a\\) and $HOME"],
  ["see [a\\(b\\)](https://example.org/a_b\\)_c)", "see a\\(b\\)"],
])("text that is not a formula is parsed as Markdown: %j", (text, shown) => {
  const { container } = render(<Markdown text={text} />);

  expect(container.textContent).toBe(shown);
});

test("code keeps its backslashes and dollar signs", () => {
  const { container } = render(<Markdown text={"```python\nre.compile(r'\\(a\\)')  # $$x_1$$\n```\n\nA\\[0\\]: `\\[x\\]`"} />);

  expect(container.textContent).toContain("re.compile(r'\\(a\\)')  # $$x_1$$");
  expect(container.textContent).toContain("\\[x\\]");
});

test("<br>, <sub>, <sup> and <kbd> are rendered, in tables too; other HTML is not", () => {
  const { container } = render(<Markdown text={"H<sub>2</sub>O, x<sup>2</sup>, <kbd>Ctrl</kbd>, <sub onclick=x>no</sub>, <b>no</b>, <sub>open\n\n| a |\n|---|\n| one<br>two<br/>three |"} />);

  expect(container.querySelector("sub")).toHaveTextContent("2");
  expect([...container.querySelectorAll("sub, sup, kbd")].map((element) => element.textContent)).toEqual(["2", "2", "Ctrl"]);
  expect(container.querySelectorAll("td br")).toHaveLength(2);
  expect(container.textContent).toContain("<sub onclick=x>no</sub>, <b>no</b>, <sub>open");
});

const FOLDED = "Before.\n\n<details>\n<summary>The <b>whole</b> `list`</summary>\n\n- **one**\n- <script>window.hacked = 1</script>\n\n<details open>\n\nInner *words*.\n\n</details>\n</details>\n\nAfter.";

test("details hide their text under their summary", async () => {
  const { container } = render(<Markdown text={FOLDED} />);
  const [outer, inner] = screen.getAllByRole("group");

  expect(outer).not.toHaveAttribute("open");
  expect(outer?.querySelector("summary")).toHaveTextContent(/^The whole list$/);
  await userEvent.click(screen.getByText("The whole list"));
  expect(outer).toHaveAttribute("open");
  expect(screen.getByText("one").tagName).toBe("STRONG");
  expect(inner).toHaveAttribute("open");
  expect(inner?.querySelector("summary")).toHaveTextContent(/^Details$/);
  expect(inner).toHaveTextContent("Inner words.");
  expect(container.querySelector("script")).toBeNull();
  expect(screen.getByText("After.").parentElement).toBe(screen.getByText("Before.").parentElement);
});

test("growing details are collapsed at once and stay as the user set them", async () => {
  const { rerender } = render(<Markdown text={"<details>\n<summary>Mo"} isGrowing />);
  const details = screen.getByRole("group");
  await userEvent.click(screen.getByText("Mo"));

  rerender(<Markdown text={"<details>\n<summary>More</summary>\n\nfirst\n\nsec"} isGrowing />);
  rerender(<Markdown text={"<details>\n<summary>More</summary>\n\nfirst\n\nsecond\n\n</details>\n\nAfter."} />);

  expect(await screen.findByText("After.")).toBeVisible();
  expect(screen.getByRole("group")).toBe(details);
  expect(details).toHaveAttribute("open");
  expect(details).not.toHaveTextContent("After.");
  expect(screen.getByText("second").tagName).toBe("P");
});

test("details that are unclosed or nested too deeply stay text", () => {
  const { container } = render(<Markdown text={`<details>\n\nopen\n\n${"<details>\n".repeat(200)}deep\n${"</details>\n".repeat(200)}`} />);

  expect(container.querySelectorAll("details")).toHaveLength(4);
  expect(container).toHaveTextContent(/^<details>\s*open/);
  expect(container).toHaveTextContent("deep");
});

test("a citation of an unknown source is not shown", () => {
  const { container } = render(<Markdown text={"It grew [[S:1]], and nobody knows why [[S:2,3]]. `[[S:4]]`"} />);

  expect(container.textContent).toBe("It grew, and nobody knows why. [[S:4]]");
});

test("a footnote reference leads to the footnote of the same text, and back", async () => {
  const text = "One[^a].\n\n[^a]: Where it is from.";
  render(<><Markdown text={`Other. ${text}`} /><Markdown text={text} /></>);
  Element.prototype.scrollIntoView = () => undefined;

  await userEvent.click(screen.getAllByRole("button", { name: "Footnote 1" })[1]!);
  expect(screen.getAllByRole("listitem")[1]).toHaveFocus();
  await userEvent.click(screen.getAllByRole("button", { name: /^Back to the text/ })[1]!);

  expect(screen.getAllByRole("button", { name: "Footnote 1" })[1]).toHaveFocus();
});

test("each paragraph has the direction of its own letters", () => {
  const { container } = render(<Markdown text={"مرحبا.\n\nHello.\n\n- שלום"} />);

  expect([...container.querySelectorAll("p, ul")].map((element) => element.getAttribute("dir"))).toEqual(["auto", "auto", "auto"]);
});

/** Texts that kept the parser busy for seconds, each with a repeat count. */
const SLOW: readonly (readonly [name: string, text: string])[] = [
  ["mixed emphasis", "*a_ ".repeat(16_000)],
  ["underlined headings", "a\n=\n".repeat(20_000)],
  ["closing brackets", "]".repeat(64_000)],
  ["links that begin", "[a](".repeat(16_000)],
  ["nested links", "[".repeat(5_000) + "a" + "](b)".repeat(5_000)],
  ["nested emphasis", "*a ".repeat(5_000) + "a* ".repeat(5_000)],
  ["strong without blanks", "**x".repeat(10_000)],
  ["strike through", "~~a~~ ".repeat(10_000)],
  ["quotations in lists", "- > a\n".repeat(10_000)],
  ["lazy lines", "> a\nb\n".repeat(10_000)],
  ["quotations deep in one line", "> ".repeat(30_000)],
  ["a list", "- a\n".repeat(20_000)],
  ["a table", "|a|b|\n|-|-|\n" + "|c|d|\n".repeat(10_000)],
  ["footnotes", "[^a] ".repeat(10_000) + "\n\n[^a]: x\n"],
  ["backticks", Array.from({ length: 350 }, (_, at) => "`".repeat(at + 1)).join("a")],
  ["one run of backticks", "`".repeat(40_000) + "\\("],
  ["formulas that begin", "\\( ".repeat(20_000)],
  ["dollars", "$a ".repeat(20_000)],
  ["blanks in a line", `a${" ".repeat(29_800)}b`],
  ["hosts without a scheme", "www.a ".repeat(4_900)],
  ["addresses without Markdown", "http://a ".repeat(3_300)],
  ["addresses of mail", "a@b.".repeat(7_400)],
  ["details in details", "<details>\n".repeat(10_000) + "</details>\n".repeat(10_000)],
  ["blanks before a citation", `[[S:1]]${" ".repeat(29_000)}a`],
];
/** Each block takes about a tenth of this on an idle machine. */
const BLOCK_LIMIT_MS = 2_000;

test.each(SLOW)("no block takes long to parse: %s", (_, text) => {
  for (const block of splitBlocks(text)) {
    const begun = performance.now();
    if (!isTooCostly(block)) parse(block);
    expect(performance.now() - begun).toBeLessThan(BLOCK_LIMIT_MS);
  }
});

test("a text that takes too long is shown as plain text", () => {
  const { container } = render(<Markdown text={"a\n=\n".repeat(20_000)} />);

  expect(container.querySelector("p")).toHaveTextContent(/^a = a =/);
  expect(container.querySelector("h3")).toBeNull();
});

test("usual long answers are below the cost limit", () => {
  const report = "## Part\n\nThe **totals** differ, see [the page](https://example.org/1) and `code`.\n\n- **first**: one\n- second\n\n| region | revenue |\n|---|---:|\n| North | 12 |\n\n".repeat(200);
  const table = "| a | b | c |\n|---|---|---|\n" + "| one | **two** | 3 |\n".repeat(150);
  const list = "- **name**: what it is, with `code` and [a link](https://example.org)\n".repeat(400);
  const code = "```python\n" + "x[a_b] = y * z[1]\n".repeat(2_000) + "```\n";

  for (const text of [report, table, list, code]) expect(splitBlocks(text).filter(isTooCostly)).toEqual([]);
});
