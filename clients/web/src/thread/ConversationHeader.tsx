/** The name of the conversation, its project, the widgets of its agent and, if there is a choice of agents, its agent. */
import type { JSX } from "react";

import { AgentLabel } from "../agents/AgentLabel";
import type { ConversationView, TurnView } from "../api";
import { WidgetButtons } from "../widgets/WidgetButtons";
import { ProjectButton } from "./ProjectButton";
import styles from "./thread.module.css";

interface ConversationHeaderProps {
  name: string;
  /** Undefined while it is not loaded. */
  conversation: ConversationView | undefined;
  turns: readonly TurnView[];
  isAbsent: boolean;
}

export function ConversationHeader({ name, conversation, turns, isAbsent }: ConversationHeaderProps): JSX.Element {
  return (
    <header className={styles.header}>
      <h1 dir="auto">{isAbsent ? "Conversation not found" : name}</h1>
      {conversation && <ProjectButton turns={turns} />}
      {conversation && <WidgetButtons agentId={conversation.bundle_id} />}
      {conversation && <AgentLabel id={conversation.bundle_id} />}
    </header>
  );
}
