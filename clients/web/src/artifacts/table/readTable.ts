/** Parses separated values into rows of text. */
import Papa from "papaparse";

export interface TableData {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** Whether there are more rows or columns than were read. */
  readonly isCut: boolean;
}

export const MAX_ROWS = 50_000;
export const MAX_COLUMNS = 200;

/** The first line names the columns; short rows are padded. */
export function readTable(text: string): TableData {
  const parsed = Papa.parse<string[]>(text.replace(/^\uFEFF/, ""), { skipEmptyLines: "greedy", preview: MAX_ROWS + 2 });
  const [head = [], ...body] = parsed.data;
  const width = body.reduce((most, row) => Math.max(most, row.length), head.length);
  const shown = Math.min(width, MAX_COLUMNS);
  const fill = (row: readonly string[]): string[] => Array.from({ length: shown }, (_, at) => row[at] ?? "");
  const columns = fill(head).map((name, at) => (name.trim() === "" ? `Column ${at + 1}` : name.trim()));
  return { columns, rows: body.slice(0, MAX_ROWS).map(fill), isCut: body.length > MAX_ROWS || width > shown };
}

/** Numbers come before words and compare by value; words compare by the user's locale. */
export function compareCells(first: string, second: string): number {
  const [a, b] = [toNumber(first), toNumber(second)];
  if (a !== null && b !== null) return a - b;
  if (a !== null) return -1;
  if (b !== null) return 1;
  return first.localeCompare(second, undefined, { numeric: true, sensitivity: "base" });
}

export function isNumber(text: string): boolean {
  return toNumber(text) !== null;
}

function toNumber(text: string): number | null {
  const plain = text.trim().replace(/,(?=\d{3}(?:\D|$))/g, "");
  return /^[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?$/i.test(plain) ? Number(plain) : null;
}
