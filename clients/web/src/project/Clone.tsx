/** How to clone the project. */
import type { JSX } from "react";

import { CodeBlock } from "../markdown/CodeBlock";
import { useSession } from "../session/context";
import styles from "./project.module.css";

export function Clone({ conversationId }: { conversationId: string }): JSX.Element {
  const { backend, isSignedIn } = useSession();
  return (
    <div className={styles.clone}>
      <CodeBlock code={`git clone ${window.location.origin}${backend.clonePath(conversationId)}`} language="bash" />
      <p>
        {isSignedIn
          ? "Git asks for a user name, which can be anything, and for a password: enter your token or an API key."
          : "Git needs no password here."}
      </p>
      <p className={styles.soft}>Pull again to get later commits. Pushing is not possible: only the agent changes the project.</p>
    </div>
  );
}
