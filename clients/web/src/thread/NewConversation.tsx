/** The page for a new conversation: the agents to choose from, messages to start with, and the message field. */
import { useCallback, useRef } from "react";
import type { JSX } from "react";

import { describeAgent, findAgent } from "../agents/agents";
import { AgentMark } from "../agents/AgentMark";
import { AgentPicker } from "../agents/AgentPicker";
import { Starters } from "../agents/Starters";
import { useAgentChoice } from "../agents/useAgents";
import type { Accepted } from "../api";
import { Composer } from "../composer/Composer";
import type { ComposerHandle } from "../composer/Composer";
import type { Draft } from "../composer/useSending";
import { escapeDirectionControls } from "../ui/invisibleCharacters";
import { buildPending } from "./ConversationScreen";
import type { Pending } from "./pending";
import styles from "./thread.module.css";

const INTRODUCTION = "Ask a question, attach files, or have code written and run. You can inspect every step, now and later.";

interface NewConversationProps {
  /** The only agent to begin with; without it, people choose. */
  agentId?: string;
  onCreated: (conversationId: string, first: Pending | null) => void;
}

export function NewConversation({ agentId, onCreated }: NewConversationProps): JSX.Element {
  const { agents, chosen: choice, choose } = useAgentChoice();
  const chosen = agentId === undefined ? choice : findAgent(agents, agentId);
  const composer = useRef<ComposerHandle>(null);
  const onAccepted = useCallback((accepted: Accepted, draft: Draft) => {
    onCreated(accepted.conversation_id, accepted.turn_id === undefined ? null : buildPending(accepted.turn_id, draft));
  }, [onCreated]);
  const hasPicker = agentId === undefined && agents.length > 1;
  const about = chosen === undefined || hasPicker ? "" : escapeDirectionControls(describeAgent(chosen));
  return (
    <div className={styles.screen}>
      <div className={styles.opening}>
        <div className={styles.welcome}>
          {chosen === undefined || hasPicker ? <h1>What would you like to work on?</h1> : (
            <h1><AgentMark agent={chosen} /> <bdi>{escapeDirectionControls(chosen.title)}</bdi></h1>
          )}
          {!hasPicker && <p dir="auto">{about === "" ? INTRODUCTION : about}</p>}
          {hasPicker && <AgentPicker agents={agents} chosen={chosen} onChoose={choose} onDone={() => { composer.current?.focus(); }} />}
          <Starters items={chosen?.starters ?? []} onStart={(text) => { composer.current?.start(text); }} />
        </div>
      </div>
      <Composer
        ref={composer}
        conversationId="new"
        // The default agent is not named: the conversation then follows the server's choice of a default.
        bundleId={agentId ?? (chosen === undefined || chosen.is_default ? undefined : chosen.id)}
        agentTitle={chosen?.title}
        isBusy={false}
        isStopping={false}
        onAccepted={onAccepted}
        onStop={doNothing}
      />
    </div>
  );
}

function doNothing(): void {
  // Nothing runs before the first message.
}
