/** Finds the matches of a query in a snippet, like the server's search: whole words, ignoring case and accents. */

import { toPlainText } from "../markdown/plainText";

export interface Piece {
  readonly text: string;
  readonly isHit: boolean;
}

type Span = readonly [start: number, end: number];

/** Fits into two or three lines of the list. */
const LIMIT_CHARS = 140;
/** How much of it precedes the first match. */
const BEFORE_CHARS = 40;
const WORD = /[\p{L}\p{N}\p{M}]+/gu;
/** Thai, Lao, Burmese, Khmer, kana and Chinese characters, which are written without spaces between words. */
const UNSPACED = /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+/gu;

/** An excerpt around the first match, in pieces that are matches or not. */
export function cutSnippet(snippet: string, query: string): readonly Piece[] {
  const text = toPlainText(snippet);
  const spans = findSpans(text, query);
  const start = findStart(text, spans[0]?.[0] ?? 0);
  const end = findEnd(text, start + LIMIT_CHARS);
  const pieces = cutPieces(text, spans.filter(([from, to]) => from >= start && to <= end), start, end);
  return [...(start > 0 ? [plain("…")] : []), ...pieces, ...(end < text.length ? [plain("…")] : [])];
}

function findSpans(text: string, query: string): readonly Span[] {
  const words = [...query.matchAll(WORD)].map(([word]) => word);
  const wanted = new Set(words.map(fold));
  const runs = words.flatMap((word) => word.match(UNSPACED) ?? []);
  // The runs contain only letters, so nothing has to be escaped.
  const unspaced = runs.length === 0 ? null : new RegExp(runs.join("|"), "gu");
  return [...text.matchAll(WORD)].flatMap(({ 0: word, index }): readonly Span[] => {
    if (wanted.has(fold(word))) return [[index, index + word.length]];
    return unspaced === null ? [] : [...word.matchAll(unspaced)].map((run) => [index + run.index, index + run.index + run[0].length]);
  });
}

/** Ignores case, width and accents. */
function fold(word: string): string {
  return word.normalize("NFKD").toUpperCase().toLowerCase().normalize("NFKD").replace(/\p{M}/gu, "");
}

function findStart(text: string, hit: number): number {
  if (hit <= BEFORE_CHARS) return 0;
  const blank = text.indexOf(" ", hit - BEFORE_CHARS);
  return blank >= 0 && blank < hit ? blank + 1 : hit;
}

/** Between two words if there is a blank nearby. */
function findEnd(text: string, latest: number): number {
  if (text.length <= latest) return text.length;
  const blank = text.lastIndexOf(" ", latest);
  return blank > latest - BEFORE_CHARS ? blank : latest;
}

function cutPieces(text: string, spans: readonly Span[], start: number, end: number): readonly Piece[] {
  const pieces: Piece[] = [];
  let place = start;
  for (const [from, to] of spans) {
    pieces.push(plain(text.slice(place, from)), { text: text.slice(from, to), isHit: true });
    place = to;
  }
  return [...pieces, plain(text.slice(place, end))].filter((piece) => piece.text !== "");
}

function plain(text: string): Piece {
  return { text, isHit: false };
}
