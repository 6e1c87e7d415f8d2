/** Which agent answers in a conversation. Without a choice of agents there is nothing to say. */
import type { JSX } from "react";

import { escapeDirectionControls } from "../ui/invisibleCharacters";
import { findAgent } from "./agents";
import { AgentMark } from "./AgentMark";
import styles from "./agents.module.css";
import { useAgents } from "./useAgents";

/** `id` is the agent of the conversation, undefined for the default one. */
export function AgentLabel({ id }: { id: string | undefined }): JSX.Element | null {
  const agents = useAgents();
  const agent = findAgent(agents, id);
  if (agents.length === 0 || (agent === undefined ? id === undefined : agents.length === 1)) return null;
  const title = escapeDirectionControls(agent?.title ?? `${id ?? ""} (not available)`);
  return (
    <p className={styles.label} title={title}>
      {agent && <AgentMark agent={agent} />}
      <span className="visually-hidden">Agent: </span>
      <bdi>{title}</bdi>
    </p>
  );
}
