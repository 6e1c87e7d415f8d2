import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";

import { Markdown } from "./Markdown";
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
  "[ref]: javascript:window.hacked=1\n\n[ref]",
  "| a |\n| - |\n| <svg onload='window.hacked=1'> |",
  "```html\n<script>window.hacked = 1</script>\n```",
];

test.each(HOSTILE)("a hostile answer stays text: %s", (text) => {
  const { container } = render(<Markdown text={text} />);

  expect(container.querySelectorAll("script, iframe, object, embed, svg[onload], form, style, link, meta, base")).toHaveLength(0);
  expect([...container.querySelectorAll("*")].flatMap((element) => element.getAttributeNames()).filter((name) => name.startsWith("on"))).toEqual([]);
  for (const link of container.querySelectorAll("a")) expect(link.protocol).toMatch(/^(?:https?|mailto):$/);
  expect(container.querySelectorAll("img")).toHaveLength(0);
});

test("a link opens elsewhere and tells nothing of this page", () => {
  render(<Markdown text="[docs](https://example.org/a)" />);

  const link = screen.getByRole("link", { name: "docs" });
  expect(link).toHaveAttribute("target", "_blank");
  expect(link).toHaveAttribute("rel", "noopener noreferrer");
});

test("an image of the web is a link that says where it is", () => {
  render(<Markdown text="![a chart](https://pictures.example/x.png)" />);

  expect(screen.getByRole("link", { name: "Image: a chart (pictures.example)" })).toHaveAttribute("href", "https://pictures.example/x.png");
});

test("an image that is in the text itself is shown", () => {
  render(<Markdown text="![dot](data:image/png;base64,iVBORw0KGgo=)" />);

  expect(screen.getByRole("img", { name: "dot" })).toHaveAttribute("src", "data:image/png;base64,iVBORw0KGgo=");
});

test("a link to a cited source is its number with its title", () => {
  const references = buildReferences([{ sid: 3, title: "Annual report", url: "https://example.org/r", source_type: "web" }], []);
  render(<ReferencesContext value={references}><Markdown text="It grew. [Annual report](https://example.org/r)" /></ReferencesContext>);

  expect(screen.getByRole("link", { name: "Source 3: Annual report" })).toHaveTextContent("3");
});

test("a text that grows keeps the elements of its finished blocks", () => {
  const { container, rerender } = render(<Markdown text={"first\n\nsecond"} isGrowing />);
  const first = container.querySelector("p");
  rerender(<Markdown text={"first\n\nsecond and more\n\n- third"} isGrowing />);

  expect(container.querySelector("p")).toBe(first);
  expect(screen.getByRole("listitem")).toHaveTextContent("third");
});

test.each([">".repeat(20_000), "- ".repeat(10_000), "> 1. ".repeat(5_000)])("a block that nests too deep is shown as it was written: %.10s", (deep) => {
  const { container } = render(<Markdown text={`**before**\n\n${deep}x`} />);

  expect(container.querySelector("strong")).toBeVisible();
  expect(container.querySelector("blockquote, ul, ol")).toBeNull();
  expect(container).toHaveTextContent(`${deep}x`.trim());
});

test("a block that is too long to be parsed is shown as it was written", () => {
  const { container } = render(<Markdown text={`**${"x".repeat(200_000)}**`} />);

  expect(container.querySelector("strong")).toBeNull();
  expect(container).toHaveTextContent(/^\*\*x+\*\*$/);
});

test("headings of an answer stand below those of the page", () => {
  render(<Markdown text="# Title" />);

  expect(screen.getByRole("heading", { level: 3 })).toHaveTextContent("Title");
});

test("tables, tasks and code are what they are", () => {
  render(<Markdown text={"| a |\n| - |\n| 1 |\n\n- [x] done\n\n```py\nx = 1\n```"} />);

  expect(screen.getByRole("cell")).toHaveTextContent("1");
  expect(screen.getByRole("img", { name: "done" })).toBeInTheDocument();
  expect(screen.getByRole("figure", { name: "Code, py" })).toHaveTextContent("x = 1");
});

test("the header of a table that grows is not shown as text, and is when nothing more comes", () => {
  const { rerender } = render(<Markdown text={"Rows:\n\n| region | rows |\n"} isGrowing />);
  expect(screen.getByText("Rows:")).toBeVisible();
  expect(screen.queryByText(/region/)).toBeNull();

  rerender(<Markdown text={"Rows:\n\n| region | rows |\n| --- | --- |\n"} isGrowing />);
  expect(screen.getByRole("columnheader", { name: "region" })).toBeVisible();

  rerender(<Markdown text={"Rows:\n\n| region | rows |\n"} />);
  expect(screen.getByText("| region | rows |")).toBeVisible();
});

test("code without a language is called text, and can be copied", () => {
  render(<Markdown text={"```\nx = 1\n```"} />);

  const code = screen.getByRole("figure", { name: "Code" });
  expect(code).toHaveTextContent(/^text/);
  expect(screen.getByRole("button", { name: "Copy code" })).toBeVisible();
});
