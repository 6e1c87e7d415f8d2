/** What a tool is called with, a name and a value a line. */
import type { JSX } from "react";

import styles from "./work.module.css";

type Params = Readonly<Record<string, unknown>>;

export function Parameters({ params }: { params: Params }): JSX.Element | null {
  const entries = Object.entries(params);
  if (entries.length === 0) return null;
  return (
    <dl className={styles.params}>
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{sayValue(value)}</dd>
        </div>
      ))}
    </dl>
  );
}

function sayValue(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
