/**
 * Protects TeX formulas, whose `\\(`, `_` and `*` Markdown would interpret. Before parsing each formula is replaced by a
 * placeholder without a meaning in Markdown, and afterwards it is restored wherever the placeholder ended up.
 */
import type { Node, Parent, Root, RootContent } from "mdast";

export interface Protected {
  readonly text: string;
  /** The replaced texts, by the number of their placeholder. */
  readonly literals: readonly Literal[];
}

interface Literal {
  readonly text: string;
  /** Whether it is a formula, not only an escape. */
  readonly isFormula: boolean;
}

const OPEN = "\uE000";
const CLOSE = "\uE001";
const MARK = new RegExp(`${OPEN}(\\d+)${CLOSE}`, "g");
/** A formula is at most this long and contains no blank line. */
const MAX_FORMULA_CHARS = 4_000;
const FENCE = /^ {0,3}(`{3,}|~{3,})/;
/** TeX spacing and punctuation. Markdown would remove the backslash, which is never intended. */
const TEX_SIGNS = new Set(["(", ",", ";", ":", "%", "{", "}"]);
/** An opening dollar sign is not followed by a blank. The content must contain TeX, otherwise it is a price. */
const BETWEEN_DOLLARS = /\$(?=[^\s$])((?:\\.|[^$\\])*?[^\s\\$])\$(?!\d)/suy;
const TEX = /[\\^_{]/;
const ENVIRONMENT = /\\begin\{([A-Za-z]+\*?)\}/y;

/** The text with a placeholder for each formula outside of code. */
export function protectLiterals(text: string): Protected {
  if (!/[\\$]/.test(text) || text.includes(OPEN) || text.includes(CLOSE)) return { text, literals: [] };
  const literals: Literal[] = [];
  const parts: string[] = [];
  let from = 0;
  let at = 0;
  const keep = (end: number, isFormula: boolean): void => {
    parts.push(text.slice(from, at), `${OPEN}${literals.length}${CLOSE}`);
    literals.push({ text: text.slice(at, end), isFormula });
    from = at = end;
  };
  while (at < text.length) {
    const sign = text[at];
    if (sign === "`" || sign === "~") at = skipCode(text, at);
    else if (sign !== "\\" && sign !== "$") at += 1;
    else {
      const end = findFormulaEnd(text, at);
      if (end > 0) keep(end, true);
      else if (sign === "\\" && isTexSign(text, at)) keep(at + 2, false);
      else at += sign === "\\" ? 2 : text.startsWith("$$", at) ? 2 : 1;
    }
  }
  return { text: literals.length === 0 ? text : parts.join("") + text.slice(from), literals };
}

/** A remark plugin that restores the replaced texts. */
export function restoreLiterals({ literals }: { literals: readonly Literal[] }): (tree: Root) => void {
  return (tree) => { if (literals.length > 0) restoreIn(tree, literals); };
}

/** The end of the formula that begins here; 0 if none does. */
function findFormulaEnd(text: string, at: number): number {
  if (text.startsWith("\\(", at)) return findEnd(text, at + 2, "\\)");
  if (text.startsWith("\\[", at)) return findEnd(text, at + 2, "\\]");
  if (text.startsWith("$$", at)) return findEnd(text, at + 2, "$$");
  ENVIRONMENT.lastIndex = at;
  const environment = ENVIRONMENT.exec(text);
  if (environment !== null) return findEnd(text, ENVIRONMENT.lastIndex, `\\end{${environment[1] ?? ""}}`);
  if (text[at] !== "$") return 0;
  // Only up to the maximum length, so that a text full of dollar signs is not scanned once for each of them.
  const line = text.slice(at, at + MAX_FORMULA_CHARS / 8).split(/\n\s*\n/, 1)[0] ?? "";
  BETWEEN_DOLLARS.lastIndex = 0;
  const found = BETWEEN_DOLLARS.exec(line);
  return found !== null && TEX.test(found[1] ?? "") ? at + found[0].length : 0;
}

function findEnd(text: string, from: number, end: string): number {
  const content = text.slice(from, from + MAX_FORMULA_CHARS);
  const place = content.indexOf(end);
  return place < 0 || /\n[ \t]*\n/.test(content.slice(0, place)) ? 0 : from + place + end.length;
}

function isTexSign(text: string, at: number): boolean {
  const next = text[at + 1] ?? "";
  if (TEX_SIGNS.has(next)) return true;
  // A delimiter of a display formula that is longer than a block or not complete yet.
  return (next === "[" || next === "]") && /(?:^|\n)[ \t]*$/.test(text.slice(Math.max(0, at - 20), at)) && /^[ \t]*(?:\n|$)/.test(text.slice(at + 2, at + 22));
}

/** The position after the code that begins here, or after its delimiter if it is never closed. */
function skipCode(text: string, at: number): number {
  const sign = text[at] ?? "";
  let end = at;
  while (text[end] === sign) end += 1;
  const run = `${sign}{${end - at}`;
  const lineStart = text.lastIndexOf("\n", at - 1) + 1;
  const fence = FENCE.exec(text.slice(lineStart, end));
  if (fence !== null && at - lineStart <= 3) {
    const closing = new RegExp(`\\n {0,3}${run},}[ \\t]*(?:\\n|$)`, "g");
    closing.lastIndex = end - 1;
    return closing.exec(text) === null ? text.length : closing.lastIndex;
  }
  if (sign === "~") return end;
  const closing = new RegExp(`(?<!\`)${run}}(?!\`)`, "g");
  const content = text.slice(end, end + MAX_FORMULA_CHARS);
  const found = closing.exec(content);
  return found === null || /\n[ \t]*\n/.test(content.slice(0, found.index)) ? end : end + closing.lastIndex;
}

function restoreIn(node: Node, literals: readonly Literal[]): void {
  const fields = node as unknown as Record<string, unknown>;
  for (const name of ["value", "url", "title", "alt", "lang", "meta"]) {
    const value = fields[name];
    if (typeof value !== "string" || !value.includes(OPEN)) continue;
    // In the address of a link a backslash is only ever an escape.
    const read = name === "url" ? (text: string) => text.replace(/\\(?=[!-/:-@[-`{-~])/g, "") : (text: string) => text;
    fields[name] = value.replace(MARK, (_, number: string) => read(literals[Number(number)]?.text ?? ""));
  }
  if (!("children" in node)) return;
  const parent = node as Parent;
  parent.children = parent.children.flatMap((child): RootContent[] => {
    if (child.type === "text" && child.value.includes(OPEN)) return splitText(child.value, literals);
    restoreIn(child, literals);
    return [child];
  });
}

function splitText(value: string, literals: readonly Literal[]): RootContent[] {
  // Every second part is the number of a placeholder.
  return value.split(MARK).flatMap((part, at): RootContent[] => {
    if (at % 2 === 0) return part === "" ? [] : [{ type: "text", value: part }];
    const literal = literals[Number(part)];
    if (literal === undefined) return [];
    const text: RootContent = { type: "text", value: literal.text };
    if (!literal.isFormula) return [text];
    // Rendered as its own element, which keeps its line breaks.
    return [{ type: "emphasis", children: [text], data: { hName: "span", hProperties: { className: ["math"] } } }];
  });
}
