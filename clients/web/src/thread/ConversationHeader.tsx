/** The name of the conversation, the widgets of its agent and, if there is a choice of agents, its agent. */
import type { JSX } from "react";

import { AgentLabel } from "../agents/AgentLabel";
import type { ConversationView } from "../api";
import { WidgetButtons } from "../widgets/WidgetButtons";
import styles from "./thread.module.css";

interface ConversationHeaderProps {
  name: string;
  /** Undefined while it is not loaded. */
  conversation: ConversationView | undefined;
  isAbsent: boolean;
}

export function ConversationHeader({ name, conversation, isAbsent }: ConversationHeaderProps): JSX.Element {
  return (
    <header className={styles.header}>
      <h1 dir="auto">{isAbsent ? "Conversation not found" : name}</h1>
      {conversation && <WidgetButtons agentId={conversation.bundle_id} />}
      {conversation && <AgentLabel id={conversation.bundle_id} />}
    </header>
  );
}
