/** Questions that the person may want to ask next. */
import type { JSX } from "react";

import { showTurning } from "../ui/unseen";
import { useTurnActions } from "./actions";
import styles from "./turn.module.css";

export function Suggestions({ items }: { items: readonly string[] }): JSX.Element | null {
  const { ask } = useTurnActions();
  if (items.length === 0) return null;
  return (
    <ul className={styles.suggestions} aria-label="Suggested questions">
      {items.map((item) => (
        <li key={item}>
          <button type="button" className={styles.suggestion} dir="auto" onClick={() => { ask(item); }}>{showTurning(item)}</button>
        </li>
      ))}
    </ul>
  );
}
