// @vitest-environment node
import { expect, test } from "vitest";

import { kindOf, languageOf } from "./kinds";

test.each([
  ["image/png", "chart.png", "image"],
  ["text/csv", "data", "table"],
  ["text/plain", "data.tsv", "table"],
  ["text/plain", "report.md", "markdown"],
  ["text/html", "page.html", "html"],
  ["application/json", "x", "json"],
  ["text/x-python", "run.py", "code"],
  ["text/plain", "notes.txt", "text"],
  ["application/pdf", "paper.pdf", "other"],
  ["image/svg+xml", "picture.svg", "other"],
  ["application/octet-stream", "picture.png", "other"],
] as const)("%s named %s is shown as %s", (mime, filename, kind) => {
  expect(kindOf(mime, filename)).toBe(kind);
});

test("the language of a file is that of its ending", () => {
  expect([languageOf("a.py"), languageOf("a.json"), languageOf("a.unknown"), languageOf("constructor")]).toEqual(["python", "json", "", ""]);
});
