// @vitest-environment node
import { expect, test } from "vitest";

import { buildFile, buildTurn } from "../testing/builders";
import { makeOpening, openingOf } from "./openings";

test.each([
  ["  Compare\n the north  ", "Compare the north"],
  ["Fix this:\n```py\nx = 1\n```", "Fix this"],
  ["```py\nx = 1\n```", "py x = 1"],
  ["one two three, ".repeat(8), "one two three, one two three, one two three, one two three…"],
  ["x".repeat(70), `${"x".repeat(60)}…`],
  ["😀".repeat(61), `${"😀".repeat(60)}…`],
  [" \n", ""],
])("the first words of a message are one line, cut between words: %j", (text, opening) => {
  expect(makeOpening(text)).toBe(opening);
});

test("a message without text is named by its files", () => {
  expect(makeOpening("", ["a.csv", "b.csv"])).toBe("a.csv, b.csv");
});

test("a conversation is named by its first turn only", () => {
  const turns = [buildTurn({ text: "", attachments: [buildFile({ filename: "a.csv" })] }), buildTurn({ text: "second" })];

  expect(openingOf({ turns })).toBe("a.csv");
  expect(openingOf({ turns, next_cursor: "older" })).toBe("");
  expect(openingOf({ turns: [] })).toBe("");
});
