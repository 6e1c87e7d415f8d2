/** A table of separated values with sortable columns; only the visible rows are in the DOM. */
import { createSortedRowModel, rowSortingFeature, tableFeatures, useTable } from "@tanstack/react-table";
import type { ColumnDef, Row } from "@tanstack/react-table";
import { ArrowDown, ArrowUp } from "lucide-react";
import { useMemo } from "react";
import type { JSX } from "react";
import { TableVirtuoso } from "react-virtuoso";

import { formatCount } from "../../ui/format";
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
      <p className={styles.count}>{formatCount(data.rows.length, "row")}{data.isCut ? "; the file contains more" : ""}</p>
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
          // The position of a cell in its row identifies it.
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
