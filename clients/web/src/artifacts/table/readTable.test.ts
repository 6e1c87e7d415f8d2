// @vitest-environment node
import { expect, test } from "vitest";

import { MAX_COLUMNS, MAX_ROWS, compareCells, readTable } from "./readTable";

test("quotes, separators and line ends of several kinds are read", () => {
  expect(readTable('\uFEFFname;sum\r\n"Smith; John";"1,5"\r\nAnn;2\r\n')).toEqual({
    columns: ["name", "sum"],
    rows: [["Smith; John", "1,5"], ["Ann", "2"]],
    isCut: false,
  });
});

test("rows of unlike length are filled up, and columns without a name are numbered", () => {
  expect(readTable("a,b\n1\n1,2,3")).toEqual({ columns: ["a", "b", "Column 3"], rows: [["1", "", ""], ["1", "2", "3"]], isCut: false });
});

test("a very long table is cut and says so", () => {
  const table = readTable(`n\n${Array.from({ length: MAX_ROWS + 5 }, (_, at) => at).join("\n")}`);

  expect(table.rows).toHaveLength(MAX_ROWS);
  expect(table.isCut).toBe(true);
});

test("a very wide row does not make all others as wide", () => {
  const table = readTable(`a,b\n${"1\n".repeat(MAX_ROWS - 1)}${"1,".repeat(100_000)}`);

  expect(table.columns).toHaveLength(MAX_COLUMNS);
  expect(table.rows).toHaveLength(MAX_ROWS);
  expect(table.rows.every((row) => row.length === MAX_COLUMNS)).toBe(true);
  expect(table.isCut).toBe(true);
});

test("numbers are compared as numbers and come before words", () => {
  expect(["10", "9", "b", "1,200", "A"].sort(compareCells)).toEqual(["9", "10", "1,200", "A", "b"]);
});

test("an empty text is an empty table", () => {
  expect(readTable("")).toEqual({ columns: [], rows: [], isCut: false });
});
