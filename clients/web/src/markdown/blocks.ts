/**
 * Splits Markdown into its top-level blocks, so that only the last block of a growing text is parsed again.
 *
 * A split is never visible: a list, a fence or a table stays in one block. Only a very long list is split between items.
 */

const FENCE = /^\s*(`{3,}(?=[^`]*$)|~{3,})/;
/** A fence that begins a block. With more indentation it is an indented code line, or part of a list. */
const FIRST_FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})/;
const LIST_ITEM = /^(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const HEADING = /^#{1,6}(?:\s|$)/;
const INDENTED = /^(?: {2,}|\t)/;
const FOOTNOTE = /^ {0,3}\[\^[^\]\n]+\]:/m;
const DEFINITION = /^ {0,3}\[([^\]\n^][^\]\n]*)\]:[ \t]*\S.*$/gm;
const LABEL = /\[([^[\]]{1,999})\]/g;
/** Only without other attributes and alone on its line. With more indentation it is code, or part of a list. */
const DETAILS = /^ {0,3}<details( open)?>[ \t]*(?=<summary>|\n|$)/i;
const ANY_DETAILS = /^ {0,3}<details/i;
const DETAILS_END = /<\/details>[ \t]*$/i;
const SUMMARY = /^\s*<summary>(.*?)<\/summary>/is;
const GROWING_SUMMARY = /^\s*<summary>(.*?)(?:<\/summary>|$)/is;
/** A longer text is not treated as a summary. */
const MAX_SUMMARY_CHARS = 500;
/** Above this length a list is split between two items of its first level. */
const LONG_CHARS = 8_000;
/** How many times longer the text may become when definitions are repeated in blocks. */
const MAX_GROWTH = 3;

interface Scan {
  blocks: string[];
  start: number;
  fence: string | null;
  isList: boolean;
  afterBlank: boolean;
  afterDetails: boolean;
}

/**
 * The blocks of the text in order. Joined they are the whole text, with `\
` line endings. A `<details>` block ends at its
 * end tag; without one, a growing text is one block up to its end.
 */
export function splitBlocks(written: string, isGrowing = false): readonly string[] {
  // The parser treats `\r` as a line ending too.
  const text = written.replace(/\r\n?/g, "\n");
  // Footnotes are numbered throughout the whole text.
  if (FOOTNOTE.test(text)) return [text];
  const scan: Scan = { blocks: [], start: 0, fence: null, isList: false, afterBlank: false, afterDetails: false };
  const details = findDetails(text, isGrowing);
  let at = 0;
  while (at < text.length) {
    const detailsEnd = details.get(at);
    if (detailsEnd !== undefined) {
      cut(scan, text, at);
      at = detailsEnd + 1;
      scan.isList = false;
      scan.afterDetails = true;
      continue;
    }
    const end = endOfLine(text, at);
    readLine(scan, text, at, text.slice(at, end));
    at = end + 1;
  }
  if (scan.start < text.length) scan.blocks.push(text.slice(scan.start));
  return withDefinitions(text, scan.blocks);
}

/** Start and end of each `<details>` outside of code. Without an end tag it stays text, unless the text still grows. */
function findDetails(text: string, isGrowing: boolean): ReadonlyMap<number, number> {
  const found = new Map<number, number>();
  if (!/<details/i.test(text)) return found;
  const open: { at: number; isRead: boolean }[] = [];
  let fence: string | null = null;
  let next = 0;
  for (let at = 0; at < text.length; at = next) {
    const end = endOfLine(text, at);
    const line = text.slice(at, end);
    next = end + 1;
    if (fence !== null) {
      if (closesFence(line, fence)) fence = null;
      continue;
    }
    fence = FENCE.exec(line)?.[1] ?? null;
    if (ANY_DETAILS.test(line)) open.push({ at, isRead: DETAILS.test(line) });
    const begun = DETAILS_END.test(line) ? open.pop() : undefined;
    if (begun?.isRead === true) found.set(begun.at, end);
  }
  if (isGrowing) for (const begun of open) if (begun.isRead) found.set(begun.at, text.length);
  return found;
}

export interface Details {
  /** Empty if it has none. */
  readonly summary: string;
  readonly body: string;
  readonly isOpen: boolean;
}

/** The content of a `<details>` block; null for any other block. */
export function readDetails(block: string, isGrowing = false): Details | null {
  const opening = DETAILS.exec(block);
  if (opening === null) return null;
  const end = findDetails(block, false).get(0);
  if (end === undefined && !isGrowing) return null;
  const inner = block.slice(opening[0].length, end);
  const [head, summary = ""] = (end === undefined ? GROWING_SUMMARY : SUMMARY).exec(inner) ?? [""];
  if (summary.length > MAX_SUMMARY_CHARS) return null;
  const text = inner.slice(head.length).replace(/^\n+/, "");
  // The definitions that the block names follow its end tag.
  const body = end === undefined ? text : text.replace(DETAILS_END, "") + block.slice(end);
  return { summary, body, isOpen: opening[1] !== undefined };
}

/** A possible table header is held back up to this length: it may as well be a long sentence. */
const MAX_HELD_CHARS = 1_000;
const TABLE_LINE = /^ {0,3}\|/;
/** The beginning of the delimiter row below a header. */
const DELIMITERS = /^ {0,3}\|[ \t:|-]*$/;

/** A growing text without lines at its end that may become a table: a header, until its delimiter row is complete. */
export function withoutIncompleteTable(text: string): string {
  // At most a header and an incomplete line below it.
  const end = text.endsWith("\n") ? text.length - 1 : text.length;
  const last = text.lastIndexOf("\n", end - 1) + 1;
  if (!TABLE_LINE.test(text.slice(last, end))) return text;
  const before = last === 0 ? 0 : text.lastIndexOf("\n", last - 2) + 1;
  const isBelowHeader = last > 0 && TABLE_LINE.test(text.slice(before, last));
  const start = isBelowHeader ? before : last;
  if (isBelowHeader && (end < text.length || !DELIMITERS.test(text.slice(last)))) return text;
  if (text.length - start > MAX_HELD_CHARS || (isBelowHeader && isRow(text, before))) return text;
  return isInFence(text.slice(0, start)) ? text : text.slice(0, start);
}

/** Whether the line at `at` follows another table line. */
function isRow(text: string, at: number): boolean {
  return at > 0 && TABLE_LINE.test(text.slice(text.lastIndexOf("\n", at - 2) + 1, at));
}

function isInFence(text: string): boolean {
  let fence: string | null = null;
  for (const line of text.split("\n")) {
    if (fence === null) fence = FENCE.exec(line)?.[1] ?? null;
    else if (closesFence(line, fence)) fence = null;
  }
  return fence !== null;
}

/** Longer or more deeply nested blocks are shown as plain text. */
const MAX_BLOCK_CHARS = 30_000;
const MAX_FENCE_CHARS = 200_000;
const TOO_DEEP = /^(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))){30}/m;
/**
 * Characters that make the parser slow, some quadratically. Measured with 70 kinds of text: blocks below the limit take up
 * to about 150 ms on an idle machine with two cores, usual text a tenth of that.
 */
const MAX_SIGNS = 1_000;
const SIGNS: readonly (readonly [sign: RegExp, weight: number])[] = [
  [/\*+|_+|~+|[[\]]/g, 1],
  [/\[\^/g, 2],
  [/`+|<|\||\\$/gm, 0.5],
  [/\\[([]|\$/g, 0.3],
  [/\n/g, 0.2],
  [/`/g, 0.05],
  // An underline of a heading, which the parser searches for in all preceding text.
  [/^[ \t>]*(?:=+|-+)[ \t]*$/gm, 4],
  // Bare addresses: at each of these the parser searches for the start and the end of an address.
  [/www\./gi, 1],
  [/:\/\//g, 0.5],
  [/@/g, 0.3],
];
/** The marker of a list item or a quotation: the first one of a line, or one that follows another marker. */
const MARKER = /[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))/y;
const FIRST_MARKER_WEIGHT = 0.7;
const SECOND_MARKER_WEIGHT = 3;

/** Whether parsing a block would block the page for too long; such a block is shown as plain text. */
export function isTooCostly(block: string): boolean {
  if (block.length < MAX_SIGNS) return TOO_DEEP.test(block);
  // A fence is one token, whatever it contains.
  if (isOneFence(block)) return block.length > MAX_FENCE_CHARS;
  if (block.length > MAX_BLOCK_CHARS || TOO_DEEP.test(block)) return true;
  return SIGNS.reduce((sum, [sign, weight]) => sum + weight * (block.match(sign)?.length ?? 0), weighMarkers(block)) > MAX_SIGNS;
}

/** Line by line, because a look-behind for the line start takes quadratic time in the number of blanks. */
function weighMarkers(block: string): number {
  let sum = 0;
  for (let at = 0; at < block.length; at = endOfLine(block, at) + 1) {
    MARKER.lastIndex = at;
    if (!MARKER.test(block)) continue;
    sum += FIRST_MARKER_WEIGHT;
    if (MARKER.test(block)) sum += SECOND_MARKER_WEIGHT;
  }
  return sum;
}

function endOfLine(text: string, at: number): number {
  const newline = text.indexOf("\n", at);
  return newline < 0 ? text.length : newline;
}

function isOneFence(block: string): boolean {
  const fence = FIRST_FENCE.exec(block.split("\n", 1)[0] ?? "")?.[1];
  if (fence === undefined) return false;
  const rest = block.split("\n").slice(1);
  const closing = rest.findIndex((line) => closesFence(line, fence));
  return closing < 0 || rest.slice(closing + 1).every((line) => line.trim() === "");
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
  if (scan.afterDetails || beginsBlock(scan, line, at - scan.start)) cut(scan, text, at);
  if (at === scan.start) scan.isList = LIST_ITEM.test(line);
  scan.afterBlank = scan.afterDetails = false;
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

/** Adds to each block the definitions that it names, so that links such as `[text][1]` resolve. */
function withDefinitions(text: string, blocks: readonly string[]): readonly string[] {
  const definitions = findDefinitions(text);
  if (definitions.size === 0) return blocks;
  const whole: string[] = [];
  let left = MAX_GROWTH * text.length + LONG_CHARS;
  for (const block of blocks) {
    const named = FENCE.exec(block) === null ? withNamed(block, definitions) : block;
    left -= named.length;
    // When most blocks name long addresses, the whole text as one block is less to parse.
    if (left < 0) return [text];
    whole.push(named);
  }
  return whole;
}

/** By label as Markdown compares it; the first definition of a label wins. */
function findDefinitions(text: string): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  if (!text.includes("]:")) return found;
  for (const [definition, label = ""] of text.matchAll(DEFINITION)) {
    const name = normalizeLabel(label);
    if (!found.has(name)) found.set(name, definition);
  }
  return found;
}

function withNamed(block: string, definitions: ReadonlyMap<string, string>): string {
  const named = new Set<string>();
  for (const [, label = ""] of block.matchAll(LABEL)) {
    const definition = definitions.get(normalizeLabel(label));
    if (definition !== undefined) named.add(definition);
  }
  return named.size === 0 ? block : `${block}\n\n${[...named].join("\n")}`;
}

function normalizeLabel(label: string): string {
  return label.trim().replace(/\s+/g, " ").toLowerCase();
}
