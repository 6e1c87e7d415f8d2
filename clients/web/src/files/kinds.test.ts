// @vitest-environment node
import { expect, test } from "vitest";

import { decodeText, kindOf, languageOf } from "./kinds";

test.each([
  ["image/png", "chart.png", "image"],
  ["text/csv", "data", "table"],
  ["text/plain", "data.tsv", "table"],
  ["text/plain", "report.md", "markdown"],
  ["text/html", "page.html", "html"],
  ["text/plain", "attached.html", "code"],
  ["text/plain", "attached.svg", "text"],
  ["text/csv; charset=windows-1252", "data", "table"],
  ["application/json", "x", "json"],
  ["text/x-python", "run.py", "code"],
  ["text/plain", "notes.txt", "text"],
  ["application/pdf", "paper.pdf", "other"],
  ["image/svg+xml", "picture.svg", "other"],
  ["application/octet-stream", "picture.png", "other"],
] as const)("%s named %s is shown as %s", (mime, filename, kind) => {
  expect(kindOf(mime, filename)).toBe(kind);
});

test("the language of a file follows its extension", () => {
  expect([languageOf("a.py"), languageOf("a.json"), languageOf("a.unknown"), languageOf("constructor")]).toEqual(["python", "json", "", ""]);
});

test.each([
  ["text/plain", [0xc3, 0xb6], "ö"],
  ["text/plain; charset=windows-1252", [0xf6], "ö"],
  ["text/plain; charset=utf-16le", [0xff, 0xfe, 0xf6, 0], "ö"],
  ["text/plain; charset=shift_jis", [0x93, 0xfa], "日"],
  ["text/plain; charset=unheard-of", [0xc3, 0xb6], "ö"],
] as const)("a file of the type %s is decoded by its charset", async (type, bytes, text) => {
  const content = { arrayBuffer: () => Promise.resolve(new Uint8Array(bytes).buffer) };
  expect(await decodeText(content, type)).toBe(text);
});
