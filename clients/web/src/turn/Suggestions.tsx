/** Suggested follow-up questions. */
import type { JSX } from "react";

import { escapeDirectionControls } from "../ui/invisibleCharacters";
import { useTurnActions } from "./actions";
import styles from "./turn.module.css";

export function Suggestions({ items }: { items: readonly string[] }): JSX.Element | null {
  const { send } = useTurnActions();
  if (items.length === 0) return null;
  return (
    <ul className={styles.suggestions} aria-label="Suggested questions">
      {items.map((item) => (
        <li key={item}>
          <button type="button" className={styles.suggestion} dir="auto" onClick={() => { send(item); }}>{escapeDirectionControls(item)}</button>
        </li>
      ))}
    </ul>
  );
}
