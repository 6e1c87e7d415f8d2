/** The title of the conversation. */
import type { JSX } from "react";

import { nameOf } from "../conversations/pages";
import styles from "./thread.module.css";

export function ConversationHeader({ title, isAbsent }: { title: string; isAbsent: boolean }): JSX.Element {
  return (
    <header className={styles.header}>
      <h1>{isAbsent ? "No conversation" : nameOf({ title })}</h1>
    </header>
  );
}
