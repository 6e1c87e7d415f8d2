/** A table of separated values: its columns sort, and only the rows in view are in the page. */
import { createSortedRowModel, rowSortingFeature, tableFeatures, useTable } from "@tanstack/react-table";
import type { ColumnDef, Row } from "@tanstack/react-table";
import { ArrowDown, ArrowUp } from "lucide-react";
import { useMemo } from "react";
import type { JSX } from "react";
import { TableVirtuoso } from "react-virtuoso";

import { sayCount } from "../../ui/wording";
import { compareCells, isNumber, readTable } from "./readTable";
import styles from "./table.module.css";

type Cells = readonly string[];

const features = tableFeatures({ rowSortingFeature, sortedRowModel: createSortedRowModel() });
const SORTS = { asc: "ascending", desc: "descending" } as const;

export default function TableArtifact({ text }: { text: string }): JSX.Element {
  const data = useMemo(() => readTable(text), [text]);
  const columns = useMemo(() => data.columns.map(buildColumn), [data]);
  const table = useTable({ features, columns, data: data.rows });
  const rows = table.getRowModel().rows;
  if (data.columns.length === 0) return <p className={styles.count}>The table is empty.</p>;
  return (
    <div className={styles.table}>
      <p className={styles.count}>{sayCount(data.rows.length, "row")}{data.isCut ? ", more is in the file" : ""}</p>
      <TableVirtuoso<Row<typeof features, Cells>>
        data={rows}
        aria-label="Rows"
        fixedHeaderContent={() => (
          <tr>
            {table.getFlatHeaders().map(({ id, column }) => {
              const sorted = column.getIsSorted();
              return (
                <th key={id} scope="col" aria-sort={sorted === false ? "none" : SORTS[sorted]}>
                  <button type="button" onClick={() => { column.toggleSorting(); }}>
                    {data.columns[Number(column.id)]}
                    {sorted === "asc" && <ArrowUp aria-hidden />}
                    {sorted === "desc" && <ArrowDown aria-hidden />}
                  </button>
                </th>
              );
            })}
          </tr>
        )}
        itemContent={(_, row) => row.original.map((cell, at) => (
          // A cell's place in its row is what it is.
          <td key={`${at}.${data.columns[at] ?? ""}`} className={isNumber(cell) ? styles.number : undefined}>{cell}</td>
        ))}
      />
    </div>
  );
}

function buildColumn(_name: string, at: number): ColumnDef<typeof features, Cells> {
  return {
    id: String(at),
    accessorFn: (row) => row[at] ?? "",
    sortDescFirst: false,
    sortFn: (first, second, id) => compareCells(String(first.getValue(id)), String(second.getValue(id))),
  };
}
