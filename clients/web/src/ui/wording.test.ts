// @vitest-environment node
import { expect, test } from "vitest";

import { ProblemError } from "../api";
import { oneLine, sayAgo, sayBytes, sayCount, sayDuration, sayError, sayUntil } from "./wording";

test.each([
  [0, "0 bytes"],
  [1, "1 byte"],
  [999, "999 bytes"],
  [1000, "1.0 kB"],
  [999_900, "1.0 MB"],
  [25_000_000, "25.0 MB"],
])("%i bytes are said as %s", (bytes, said) => {
  expect(sayBytes(bytes)).toBe(said);
});

test.each([
  [12, "12 ms"],
  [1234, "1.2 s"],
  [59_990, "1 min 0 s"],
  [3_725_000, "1 h 2 min"],
])("%i milliseconds are said as %s", (duration, said) => {
  expect(sayDuration(duration)).toBe(said);
});

test("a count of one takes the singular", () => {
  expect([sayCount(1, "step"), sayCount(0, "step"), sayCount(1200, "reply", "replies")]).toEqual(["1 step", "0 steps", "1,200 replies"]);
});

test.each([
  [30_000, "now"],
  [5 * 60_000, "5 min"],
  [3 * 3_600_000, "3 h"],
  [2 * 86_400_000, "2 d"],
])("what was %i milliseconds ago is said as %s", (ago, said) => {
  expect(sayAgo(1_000_000_000_000 - ago, 1_000_000_000_000)).toBe(said);
});

test("a deadline that has passed has no time left", () => {
  expect(sayUntil(1000, 1000)).toBe("");
  expect(sayUntil(121_000, 1000)).toBe("2 minutes");
  expect(sayUntil(59_000, 1000)).toBe("less than a minute");
});

test("a text of several lines becomes one that fits", () => {
  expect(oneLine("a\n  b")).toBe("a b");
  expect(oneLine("x".repeat(50), 10)).toBe(`${"x".repeat(9)}…`);
});

test("a refusal is said in the words about its field, else in its detail", () => {
  const problem = { type: "urn:everturn:problem:x", title: "Unprocessable", status: 422, detail: "The detail." };

  expect(sayError(new ProblemError({ ...problem, errors: [{ field: "files", message: "The file 'a' was rejected." }] }))).toBe("The file 'a' was rejected.");
  expect(sayError(new ProblemError(problem))).toBe("The detail.");
  expect(sayError("odd")).toBe("Something went wrong.");
});
