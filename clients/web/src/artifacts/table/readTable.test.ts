// @vitest-environment node
import { expect, test } from "vitest";

import { MAX_COLUMNS, MAX_ROWS, compareCells, readTable } from "./readTable";

test("reads several kinds of quotes, separators and line endings", () => {
  expect(readTable('\uFEFFname;sum\r\n"Smith; John";"1,5"\r\nAnn;2\r\n')).toEqual({
    columns: ["name", "sum"],
    rows: [["Smith; John", "1,5"], ["Ann", "2"]],
    isCut: false,
  });
});

test("pads short rows and numbers unnamed columns", () => {
  expect(readTable("a,b\n1\n1,2,3")).toEqual({ columns: ["a", "b", "Column 3"], rows: [["1", "", ""], ["1", "2", "3"]], isCut: false });
});

test("cuts a very long table and reports it", () => {
  const table = readTable(`n\n${Array.from({ length: MAX_ROWS + 5 }, (_, at) => at).join("\n")}`);

  expect(table.rows).toHaveLength(MAX_ROWS);
  expect(table.isCut).toBe(true);
});

test("cuts a very wide row without widening all others", () => {
  const table = readTable(`a,b\n${"1\n".repeat(MAX_ROWS - 1)}${"1,".repeat(100_000)}`);

  expect(table.columns).toHaveLength(MAX_COLUMNS);
  expect(table.rows).toHaveLength(MAX_ROWS);
  expect(table.rows.every((row) => row.length === MAX_COLUMNS)).toBe(true);
  expect(table.isCut).toBe(true);
});

test("compares numbers as numbers, and sorts them before words", () => {
  expect(["10", "9", "b", "1,200", "A"].sort(compareCells)).toEqual(["9", "10", "1,200", "A", "b"]);
});

test("reads an empty text as an empty table", () => {
  expect(readTable("")).toEqual({ columns: [], rows: [], isCut: false });
});
