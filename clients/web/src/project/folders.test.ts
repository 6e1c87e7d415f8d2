import { expect, test } from "vitest";

import { folderOf, joinPath, nameOf, openAround, toggleFolder } from "./folders";

test("a closed folder opens again with the folders in it as they were", () => {
  const both = toggleFolder(toggleFolder(new Set(), "src"), "src/deep");
  const closed = toggleFolder(both, "src");

  expect([...closed]).toEqual(["src/deep"]);
  expect(toggleFolder(closed, "src")).toEqual(both);
});

test("the folders around a file are opened, and no others", () => {
  expect(openAround(new Set(["docs"]), "src/deep/a.py")).toEqual(new Set(["docs", "src", "src/deep"]));
  expect(openAround(new Set(), "a.py")).toEqual(new Set());
});

test("paths are joined and taken apart", () => {
  expect([joinPath("", "a"), joinPath("src", "a")]).toEqual(["a", "src/a"]);
  expect(["a", "src/a", "src/deep/a"].map((path) => [folderOf(path), nameOf(path)])).toEqual([["", "a"], ["src", "a"], ["src/deep", "a"]]);
});
