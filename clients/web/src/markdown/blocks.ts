/**
 * Splits Markdown into its top-level blocks, so that a text that grows is parsed anew in its last block only.
 *
 * A block is never split in a way that shows: what a list, a fence or a table goes on with stays together, until a
 * list is so long that its items may as well be lists of their own.
 */

const FENCE = /^\s*(`{3,}(?=[^`]*$)|~{3,})/;
const LIST_ITEM = /^(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const HEADING = /^#{1,6}(?:\s|$)/;
const INDENTED = /^(?: {2,}|\t)/;
const FOOTNOTE = /^ {0,3}\[\^[^\]\n]+\]:/m;
const DEFINITION = /^ {0,3}\[[^\]\n^][^\]\n]*\]:[ \t]*\S.*$/gm;
/** From here on a list is cut between two items of its first level. */
const LONG_CHARS = 8_000;

interface Scan {
  blocks: string[];
  start: number;
  fence: string | null;
  isList: boolean;
  afterBlank: boolean;
}

/** The blocks of `text` in order; together they are the whole text. */
export function splitBlocks(text: string): readonly string[] {
  // Footnotes are numbered through the whole text.
  if (FOOTNOTE.test(text)) return [text];
  const scan: Scan = { blocks: [], start: 0, fence: null, isList: false, afterBlank: false };
  let at = 0;
  while (at < text.length) {
    const newline = text.indexOf("\n", at);
    const end = newline < 0 ? text.length : newline;
    readLine(scan, text, at, text.slice(at, end));
    at = end + 1;
  }
  if (scan.start < text.length) scan.blocks.push(text.slice(scan.start));
  return withDefinitions(text, scan.blocks);
}

function readLine(scan: Scan, text: string, at: number, line: string): void {
  if (scan.fence !== null) {
    if (closesFence(line, scan.fence)) scan.fence = null;
    return;
  }
  if (line.trim() === "") {
    scan.afterBlank = true;
    return;
  }
  if (beginsBlock(scan, line, at - scan.start)) cut(scan, text, at);
  if (at === scan.start) scan.isList = LIST_ITEM.test(line);
  scan.afterBlank = false;
  scan.fence = FENCE.exec(line)?.[1] ?? null;
}

function beginsBlock(scan: Scan, line: string, chars: number): boolean {
  if (INDENTED.test(line)) return false;
  const isItem = LIST_ITEM.test(line);
  if (scan.isList && isItem) return chars > LONG_CHARS;
  return scan.afterBlank || HEADING.test(line) || (!scan.isList && FENCE.test(line));
}

function cut(scan: Scan, text: string, at: number): void {
  if (at > scan.start) scan.blocks.push(text.slice(scan.start, at));
  scan.start = at;
}

function closesFence(line: string, fence: string): boolean {
  const closing = line.trim();
  return closing.length >= fence.length && closing === (fence[0] ?? "").repeat(closing.length);
}

/** Links such as `[text][1]` find their address in every block. */
function withDefinitions(text: string, blocks: readonly string[]): readonly string[] {
  if (!text.includes("]:")) return blocks;
  const definitions = text.match(DEFINITION);
  if (definitions === null) return blocks;
  const shared = `\n\n${definitions.join("\n")}`;
  return blocks.map((block) => (block.includes("[") && FENCE.exec(block) === null ? block + shared : block));
}
