/** Messages with which a conversation can start. */
import type { JSX } from "react";

import { escapeDirectionControls } from "../ui/invisibleCharacters";
import styles from "./agents.module.css";

export function Starters({ items, onStart }: { items: readonly string[]; onStart: (text: string) => void }): JSX.Element | null {
  if (items.length === 0) return null;
  return (
    <ul className={styles.starters} aria-label="Suggested messages">
      {[...new Set(items)].map((item) => (
        <li key={item}>
          <button type="button" className={styles.starter} dir="auto" onClick={() => { onStart(item); }}>{escapeDirectionControls(item)}</button>
        </li>
      ))}
    </ul>
  );
}
