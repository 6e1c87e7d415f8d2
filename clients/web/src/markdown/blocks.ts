/**
 * Splits Markdown into its top-level blocks, so that a text that grows is parsed anew in its last block only.
 *
 * A block is never split in a way that shows: what a list, a fence or a table goes on with stays together, until a
 * list is so long that its items may as well be lists of their own.
 */

const FENCE = /^\s*(`{3,}(?=[^`]*$)|~{3,})/;
/** One that begins a block: behind more blanks it is code that ends with its line, or stands in a list. */
const FIRST_FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})/;
const LIST_ITEM = /^(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const HEADING = /^#{1,6}(?:\s|$)/;
const INDENTED = /^(?: {2,}|\t)/;
const FOOTNOTE = /^ {0,3}\[\^[^\]\n]+\]:/m;
const DEFINITION = /^ {0,3}\[([^\]\n^][^\]\n]*)\]:[ \t]*\S.*$/gm;
const LABEL = /\[([^[\]]{1,999})\]/g;
/** Without other attributes, and no word of a sentence; one that is indented further is code, or deep in a list. */
const DETAILS = /^ {0,3}<details( open)?>[ \t]*(?=<summary>|\n|$)/i;
const ANY_DETAILS = /^ {0,3}<details/i;
const DETAILS_END = /<\/details>[ \t]*$/i;
const SUMMARY = /^\s*<summary>(.*?)<\/summary>/is;
const GROWING_SUMMARY = /^\s*<summary>(.*?)(?:<\/summary>|$)/is;
/** A longer summary is no summary. */
const MAX_SUMMARY_CHARS = 500;
/** From here on a list is cut between two items of its first level. */
const LONG_CHARS = 8_000;
/** By how much definitions that several blocks name may make the text longer. */
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
 * The blocks of the text in order; together they are all of it, with `\n` at the end of each line. `<details>` is a
 * block up to its end, and up to the end of a text that still grows where that has not come yet.
 */
export function splitBlocks(written: string, isGrowing = false): readonly string[] {
  // For the parser a line ends at `\r` as well.
  const text = written.replace(/\r\n?/g, "\n");
  // Footnotes are numbered through the whole text.
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

/** Where each `<details>` outside of code begins and ends. One that is not closed stays text, unless it may be yet. */
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
  /** Empty where it has none. */
  readonly summary: string;
  readonly body: string;
  readonly isOpen: boolean;
}

/** What stands in a block that is `<details>`; null for any other block. */
export function readDetails(block: string, isGrowing = false): Details | null {
  const opening = DETAILS.exec(block);
  if (opening === null) return null;
  const end = findDetails(block, false).get(0);
  if (end === undefined && !isGrowing) return null;
  const inner = block.slice(opening[0].length, end);
  const [head, summary = ""] = (end === undefined ? GROWING_SUMMARY : SUMMARY).exec(inner) ?? [""];
  if (summary.length > MAX_SUMMARY_CHARS) return null;
  const text = inner.slice(head.length).replace(/^\n+/, "");
  // Behind its end come the definitions that it names.
  const body = end === undefined ? text : text.replace(DETAILS_END, "") + block.slice(end);
  return { summary, body, isOpen: opening[1] !== undefined };
}

/** A header that no other line follows yet may be a long sentence as well, which is not held back for ever. */
const MAX_HELD_CHARS = 1_000;
const TABLE_LINE = /^ {0,3}\|/;
/** The beginning of the line below a header. */
const DELIMITERS = /^ {0,3}\|[ \t:|-]*$/;

/** A text that grows, without lines at its end that may become a table: its header, until the line below it is whole. */
export function withoutOpenTable(text: string): string {
  // At most a header and what there is of the line below it.
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

/** Whether the line that begins at `at` stands below another one of a table. */
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

/** A block that is longer, or nests deeper in one line, is shown as it was written. */
const MAX_BLOCK_CHARS = 30_000;
const MAX_FENCE_CHARS = 200_000;
const TOO_DEEP = /^(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))){30}/m;
/**
 * Signs by which the time of the parser grows, for some with their square. Measured for 70 kinds of text: what this lets
 * through takes the parser up to about 150 ms on an idle machine of two cores, and usual text a tenth of that.
 */
const MAX_SIGNS = 1_000;
const SIGNS: readonly (readonly [sign: RegExp, weight: number])[] = [
  [/\*+|_+|~+|[[\]]/g, 1],
  [/\[\^/g, 2],
  [/`+|<|\||\\$/gm, 0.5],
  [/\\[([]|\$/g, 0.3],
  [/\n/g, 0.2],
  [/`/g, 0.05],
  // The underline of a heading, which is looked for in all that came before it.
  [/^[ \t>]*(?:=+|-+)[ \t]*$/gm, 4],
  // Addresses without Markdown: at each of these signs the parser looks for the beginning and the end of one.
  [/www\./gi, 1],
  [/:\/\//g, 0.5],
  [/@/g, 0.3],
];
/** The mark of a list's item or of a quotation: the first one of a line, and one that stands behind another one. */
const MARKER = /[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))/y;
const FIRST_MARKER_WEIGHT = 0.7;
const SECOND_MARKER_WEIGHT = 3;

/** Whether parsing a block would keep the page still for too long; it is shown as it was written then. */
export function isTooCostly(block: string): boolean {
  if (block.length < MAX_SIGNS) return TOO_DEEP.test(block);
  // A fence is one token, whatever stands in it.
  if (isOneFence(block)) return block.length > MAX_FENCE_CHARS;
  if (block.length > MAX_BLOCK_CHARS || TOO_DEEP.test(block)) return true;
  return SIGNS.reduce((sum, [sign, weight]) => sum + weight * (block.match(sign)?.length ?? 0), weighMarkers(block)) > MAX_SIGNS;
}

/** Line by line, because a look-behind for the beginning of a line takes a time that grows with the square of its blanks. */
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

/** Links such as `[text][1]` find their address in their block, which is given the definitions that it names. */
function withDefinitions(text: string, blocks: readonly string[]): readonly string[] {
  const definitions = findDefinitions(text);
  if (definitions.size === 0) return blocks;
  const whole: string[] = [];
  let left = MAX_GROWTH * text.length + LONG_CHARS;
  for (const block of blocks) {
    const named = FENCE.exec(block) === null ? withNamed(block, definitions) : block;
    left -= named.length;
    // Where most blocks name long addresses, one block is less to parse than all of those are.
    if (left < 0) return [text];
    whole.push(named);
  }
  return whole;
}

/** By label as Markdown compares it; of several with one label the first counts. */
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
