/** Opens the widgets of the conversation's agent. */
import { PanelRight } from "lucide-react";
import { use } from "react";
import type { JSX } from "react";

import { findAgent } from "../agents/agents";
import { useAgents } from "../agents/useAgents";
import { EmbeddedContext } from "../embed/embedding";
import { useArtifacts } from "../files/artifacts";
import { Button } from "../ui/Button";
import { escapeDirectionControls } from "../ui/invisibleCharacters";
import styles from "./widgets.module.css";

/** `agentId` is the agent of the conversation, undefined for the default one. */
export function WidgetButtons({ agentId }: { agentId: string | undefined }): JSX.Element | null {
  const agent = findAgent(useAgents(), agentId);
  const { open } = useArtifacts();
  const isEmbedded = use(EmbeddedContext);
  if (isEmbedded || agent === undefined || agent.widgets.length === 0) return null;
  return (
    <ul className={styles.buttons} aria-label="Widgets">
      {agent.widgets.map((widget) => (
        <li key={widget.name}>
          <Button variant="quiet" onClick={() => { open({ kind: "widget", agentId: agent.id, widget }); }}>
            <PanelRight aria-hidden /> <bdi>{escapeDirectionControls(widget.title)}</bdi>
          </Button>
        </li>
      ))}
    </ul>
  );
}
