/** The page for a new conversation: a short introduction and the message field. */
import { useCallback } from "react";
import type { JSX } from "react";

import type { Accepted } from "../api";
import { Composer } from "../composer/Composer";
import type { Draft } from "../composer/useSending";
import { buildPending } from "./ConversationScreen";
import type { Pending } from "./pending";
import styles from "./thread.module.css";

interface NewConversationProps {
  onCreated: (conversationId: string, first: Pending | null) => void;
}

export function NewConversation({ onCreated }: NewConversationProps): JSX.Element {
  const onAccepted = useCallback((accepted: Accepted, draft: Draft) => {
    onCreated(accepted.conversation_id, accepted.turn_id === undefined ? null : buildPending(accepted.turn_id, draft));
  }, [onCreated]);
  return (
    <div className={styles.screen}>
      <div className={styles.welcome}>
        <h1>What would you like to work on?</h1>
        <p>Ask a question, attach files, or have code written and run. You can inspect every step, now and later.</p>
      </div>
      <Composer conversationId="new" isBusy={false} isStopping={false} onAccepted={onAccepted} onStop={doNothing} />
    </div>
  );
}

function doNothing(): void {
  // Nothing runs before the first message.
}
