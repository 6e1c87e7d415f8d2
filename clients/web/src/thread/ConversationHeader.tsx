/** The title of the conversation. */
import type { JSX } from "react";

import { nameOf } from "../conversations/pages";
import styles from "./thread.module.css";

export function ConversationHeader({ title }: { title: string }): JSX.Element {
  return (
    <header className={styles.header}>
      <h1>{nameOf({ title })}</h1>
    </header>
  );
}
