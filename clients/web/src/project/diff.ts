/** Reads a unified diff, in the form of `git diff`, and bounds what is shown of it. */
import type { DiffFile } from "../api";

export interface DiffLine {
  readonly kind: "added" | "removed" | "same" | "note";
  readonly text: string;
  /** The line's numbers in the older and in the newer file. */
  readonly before?: number;
  readonly after?: number;
}

export interface Hunk {
  /** The line that says where it is: `@@ -1,3 +1,4 @@ def run()`. */
  readonly head: string;
  readonly lines: readonly DiffLine[];
}

const HEAD = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/;

/**
 * The hunks of each file, in the order of the diff. The head of a hunk says how many lines follow, so a line of a file
 * never counts as the beginning of another file.
 */
export function parseDiff(diff: string): readonly (readonly Hunk[])[] {
  const files: Hunk[][] = [];
  const lines = diff.split("\n");
  let at = 0;
  while (at < lines.length) {
    const line = lines[at] ?? "";
    at += 1;
    if (line.startsWith("diff --git ")) files.push([]);
    const head = HEAD.exec(line);
    if (head === null) continue;
    const hunk = readHunk(lines, at, head);
    at += hunk.lines.length;
    files.at(-1)?.push({ head: line, lines: hunk.lines });
  }
  return files;
}

function readHunk(lines: readonly string[], start: number, [, firstBefore, countBefore = "1", firstAfter, countAfter = "1"]: RegExpExecArray): { lines: DiffLine[] } {
  let [before, after] = [Number(firstBefore), Number(firstAfter)];
  const [endBefore, endAfter] = [before + Number(countBefore), after + Number(countAfter)];
  const read: DiffLine[] = [];
  for (let at = start; at < lines.length; at += 1) {
    const line = lines[at] ?? "";
    const text = line.slice(1);
    if (line.startsWith("\\")) read.push({ kind: "note", text: text.trim() });
    else if (before >= endBefore && after >= endAfter) break;
    else if (line.startsWith("+")) read.push({ kind: "added", text, after: after++ });
    else if (line.startsWith("-")) read.push({ kind: "removed", text, before: before++ });
    else if (line.startsWith(" ")) read.push({ kind: "same", text, before: before++, after: after++ });
    else break;
  }
  return { lines: read };
}

export interface FileDiff {
  readonly file: DiffFile;
  readonly hunks: readonly Hunk[];
}

/** The files of a diff with their hunks: git lists both in the same order. */
export function joinDiff(files: readonly DiffFile[], diff: string): readonly FileDiff[] {
  const parsed = parseDiff(diff);
  return files.map((file, at) => ({ file, hunks: parsed.length === files.length ? (parsed[at] ?? []) : [] }));
}

/** The first `limit` lines of these hunks, and how many lines follow. */
export function cutHunks(hunks: readonly Hunk[], limit: number): { hunks: readonly Hunk[]; more: number } {
  const shown: Hunk[] = [];
  let left = limit;
  for (const hunk of hunks) {
    if (left > 0) shown.push(hunk.lines.length <= left ? hunk : { ...hunk, lines: hunk.lines.slice(0, left) });
    left -= hunk.lines.length;
  }
  return { hunks: shown, more: Math.max(0, -left) };
}

/** Whether each file is unfolded at first: those that together have at most `limit` lines, from the beginning. */
export function chooseUnfolded(files: readonly FileDiff[], limit: number): readonly boolean[] {
  let left = limit;
  return files.map(({ hunks }) => {
    const lines = hunks.reduce((sum, hunk) => sum + hunk.lines.length, 0);
    if (lines > left) return false;
    left -= lines;
    return true;
  });
}
