// @vitest-environment node
import { expect, test } from "vitest";

import { ProblemError, UNKNOWN_AGENT } from "../api";
import { describeError, formatAge, formatBytes, formatCount, formatDuration, formatName, formatTimeLeft, oneLine } from "./format";

test.each([
  [0, "0 bytes"],
  [1, "1 byte"],
  [999, "999 bytes"],
  [1000, "1.0 kB"],
  [999_900, "1.0 MB"],
  [25_000_000, "25.0 MB"],
])("%i bytes are written as %s", (bytes, said) => {
  expect(formatBytes(bytes)).toBe(said);
});

test.each([
  [12, "12 ms"],
  [1234, "1.2 s"],
  [59_990, "1 min 0 s"],
  [3_725_000, "1 h 2 min"],
])("%i milliseconds are written as %s", (duration, said) => {
  expect(formatDuration(duration)).toBe(said);
});

test("a count of one uses the singular", () => {
  expect([formatCount(1, "step"), formatCount(0, "step"), formatCount(1200, "reply", "replies")]).toEqual(["1 step", "0 steps", "1,200 replies"]);
});

test.each([
  [30_000, "now"],
  [5 * 60_000, "5 min"],
  [3 * 3_600_000, "3 h"],
  [2 * 86_400_000, "2 d"],
])("%i milliseconds ago is written as %s", (ago, said) => {
  expect(formatAge(1_000_000_000_000 - ago, 1_000_000_000_000)).toBe(said);
});

test("a deadline that has passed has no time left", () => {
  expect(formatTimeLeft(1000, 1000)).toBe("");
  expect(formatTimeLeft(121_000, 1000)).toBe("2 minutes");
  expect(formatTimeLeft(59_000, 1000)).toBe("less than a minute");
});

test("a text of several lines becomes one line that fits", () => {
  expect(oneLine("a\n  b")).toBe("a b");
  expect(oneLine("x".repeat(50), 10)).toBe(`${"x".repeat(9)}…`);
});

test("a rejection shows the text about its field, else its detail", () => {
  const problem = { type: "urn:everturn:problem:x", title: "Unprocessable", status: 422, detail: "The detail." };

  expect(describeError(new ProblemError({ ...problem, errors: [{ field: "files", message: "The file 'a' was rejected." }] }))).toBe("The file 'a' was rejected.");
  expect(describeError(new ProblemError(problem))).toBe("The detail.");
  expect(describeError(new ProblemError({ ...problem, type: UNKNOWN_AGENT, errors: [{ field: "body.bundle_id", message: "must be one of default" }] }))).toBe("The agent of this conversation is no longer available.");
  expect(describeError("odd")).toBe("Something went wrong.");
});

test("a conversation without a title has a default name", () => {
  expect(formatName({ title: " " })).toBe("New conversation");
  expect(formatName({ title: " " }, "Compare the north")).toBe("Compare the north");
  expect(formatName({ title: "Sales" }, "Compare the north")).toBe("Sales");
});
