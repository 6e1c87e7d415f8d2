/** The name of the conversation. */
import type { JSX } from "react";

import styles from "./thread.module.css";

export function ConversationHeader({ name, isAbsent }: { name: string; isAbsent: boolean }): JSX.Element {
  return (
    <header className={styles.header}>
      <h1 dir="auto">{isAbsent ? "Conversation not found" : name}</h1>
    </header>
  );
}
