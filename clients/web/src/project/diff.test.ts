import fc from "fast-check";
import { expect, test } from "vitest";

import type { DiffFile } from "../api";
import { chooseUnfolded, cutHunks, joinDiff, parseDiff } from "./diff";
import { showLine, splitLines } from "./text";

const DIFF = [
  "diff --git a/a.txt b/a.txt",
  "index 1..2 100644",
  "--- a/a.txt",
  "+++ b/a.txt",
  "@@ -1,3 +1,3 @@ head",
  " one",
  "--- a/not a file",
  "+diff --git a/x b/x",
  " three",
  "@@ -9 +9,0 @@",
  "-nine",
  "\\ No newline at end of file",
  "diff --git a/logo.png b/logo.png",
  "new file mode 100644",
  "Binary files /dev/null and b/logo.png differ",
  "diff --git a/b.txt b/b.txt",
  "new file mode 100644",
  "--- /dev/null",
  "+++ b/b.txt",
  "@@ -0,0 +1,2 @@",
  "+@@ -1 +1 @@",
  "+",
  "",
].join("\n");

function buildFile(path: string): DiffFile {
  return { path, change: "modified", added_lines: 1, removed_lines: 1, binary: false };
}

test("a diff is read by file, and lines that look like heads stay lines", () => {
  const [a, logo, b] = parseDiff(DIFF);

  expect(a).toEqual([
    {
      head: "@@ -1,3 +1,3 @@ head",
      lines: [
        { kind: "same", text: "one", before: 1, after: 1 },
        { kind: "removed", text: "-- a/not a file", before: 2 },
        { kind: "added", text: "diff --git a/x b/x", after: 2 },
        { kind: "same", text: "three", before: 3, after: 3 },
      ],
    },
    { head: "@@ -9 +9,0 @@", lines: [{ kind: "removed", text: "nine", before: 9 }, { kind: "note", text: "No newline at end of file" }] },
  ]);
  expect(logo).toEqual([]);
  expect(b?.[0]?.lines).toEqual([{ kind: "added", text: "@@ -1 +1 @@", after: 1 }, { kind: "added", text: "", after: 2 }]);
});

test("any text is read without an error, and no line twice", () => {
  const line = fc.oneof(fc.constantFrom(...DIFF.split("\n")), fc.string());
  fc.assert(fc.property(fc.array(line), (lines) => {
    const read = parseDiff(lines.join("\n")).flatMap((file) => file.flatMap((hunk) => hunk.lines));
    expect(read.length).toBeLessThanOrEqual(lines.join("\n").split("\n").length);
  }));
});

test("files get their hunks by their place, none if the places are not certain", () => {
  const files = ["a.txt", "logo.png", "b.txt"].map(buildFile);

  expect(joinDiff(files, DIFF).map(({ file, hunks }) => [file.path, hunks.length])).toEqual([["a.txt", 2], ["logo.png", 0], ["b.txt", 1]]);
  expect(joinDiff(files.slice(1), DIFF).every(({ hunks }) => hunks.length === 0)).toBe(true);
});

test("long differences are cut and folded", () => {
  const [a = []] = parseDiff(DIFF);

  expect(cutHunks(a, 5)).toEqual({ hunks: [a[0], { head: "@@ -9 +9,0 @@", lines: [{ kind: "removed", text: "nine", before: 9 }] }], more: 1 });
  expect(cutHunks(a, 2)).toEqual({ hunks: [{ head: a[0]?.head, lines: a[0]?.lines.slice(0, 2) }], more: 4 });
  expect(cutHunks(a, 6)).toEqual({ hunks: a, more: 0 });
  const joined = joinDiff(["a.txt", "logo.png", "b.txt"].map(buildFile), DIFF);
  expect([2, 7, 8].map((limit) => chooseUnfolded(joined, limit))).toEqual([[false, true, true], [true, true, false], [true, true, true]]);
});

test("lines are bounded and show the order of their characters", () => {
  expect(showLine("a\u202eb\r")).toBe("a\\u{202e}b");
  expect(showLine("x".repeat(3_500))).toBe(`${"x".repeat(2_000)} … (1,500 more characters)`);
  expect([splitLines("a\n\nb\n"), splitLines("a"), splitLines("\n")]).toEqual([["a", "", "b"], ["a"], [""]]);
});
