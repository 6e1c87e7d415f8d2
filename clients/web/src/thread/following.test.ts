// @vitest-environment node
import { expect, test } from "vitest";

import { isAtEnd, isFollowing } from "./following";

const END = { top: 600, height: 1_000, view: 400 };

test("an image that loads pushes the end away, and the list still follows it", () => {
  expect(isAtEnd({ ...END, height: 1_300 })).toBe(false);
  expect(isFollowing(END, { ...END, height: 1_300 }, true)).toBe(true);
});

test("a user who scrolls up stays there while more arrives", () => {
  const up = { ...END, top: 300 };

  expect(isFollowing(END, up, true)).toBe(false);
  expect(isFollowing(END, { ...up, height: 1_300 }, true)).toBe(false);
  expect(isFollowing(up, { ...up, height: 1_300 }, false)).toBe(false);
});

test("content that shrinks moves the view without counting as scrolling", () => {
  const long = { ...END, top: 900, height: 1_300 };

  expect(isFollowing(long, { top: 500, height: 1_000, view: 400 }, true)).toBe(true);
});

test("scrolling back to the end follows it again", () => {
  expect(isFollowing({ ...END, top: 300 }, { ...END, top: 560 }, false)).toBe(true);
  expect(isFollowing({ ...END, top: 300 }, { ...END, top: 450 }, false)).toBe(false);
});

test("scrolling down in steps keeps following the end", () => {
  const long = { top: 600, height: 2_000, view: 400 };

  expect(isFollowing(long, { ...long, top: 1_000 }, true)).toBe(true);
});
