/** Shown when a message was rejected because its agent no longer exists, or may not be used any more. */
import type { JSX } from "react";

import { Button } from "../ui/Button";
import styles from "./composer.module.css";

interface AgentGoneProps {
  /** Continue with the message in a new conversation; undefined if this is one. */
  onMove: (() => void) | undefined;
}

export function AgentGone({ onMove }: AgentGoneProps): JSX.Element {
  return (
    <div role="alert" className={styles.problem}>
      {onMove === undefined ? <p>This agent is no longer available, and your message was not sent. Check which agent is chosen now, then send it again.</p> : (
        <>
          <p>The agent of this conversation is no longer available. Your message was not sent; you can send it to another one.</p>
          <Button onClick={onMove}>Move the message to a new conversation</Button>
        </>
      )}
    </div>
  );
}
