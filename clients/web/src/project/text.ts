/** Bounds texts of files before the browser lays them out. */
import { escapeDirectionControls } from "../ui/invisibleCharacters";

const MAX_LINE_CHARS = 2_000;

/** A line as it is shown: not longer than the browser can lay out quickly, and in the order of its characters. */
export function showLine(line: string): string {
  const more = line.length - MAX_LINE_CHARS;
  const shown = escapeDirectionControls(line.slice(0, MAX_LINE_CHARS).replace(/\r$/, ""));
  return more <= 0 ? shown : `${shown} … (${more.toLocaleString("en")} more characters)`;
}

/** The lines of a text; a line break at its end does not begin another line. */
export function splitLines(text: string): readonly string[] {
  const lines = text.split("\n");
  return lines.at(-1) === "" ? lines.slice(0, -1) : lines;
}

/** A path or a file name as it is shown: what it is, not what it looks like. */
export function showPath(path: string): string {
  return escapeDirectionControls(path);
}
