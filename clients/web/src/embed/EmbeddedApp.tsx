/** The chat of one agent in a page of another site, without the list of conversations and without a sign-in. */
import { useCallback, useEffect, useMemo, useState } from "react";
import type { JSX } from "react";

import { EverturnClient } from "../api";
import { SessionContext } from "../session/context";
import type { UnsentFiles } from "../session/unsentFiles";
import { BrokenPage } from "../shell/BrokenPage";
import { Queries } from "../shell/Queries";
import { ConversationScreen } from "../thread/ConversationScreen";
import { NewConversation } from "../thread/NewConversation";
import type { Pending } from "../thread/pending";
import { AnnouncerProvider } from "../ui/announcer";
import { ErrorBoundary } from "../ui/ErrorBoundary";
import { describeError } from "../ui/format";
import { EmbeddedContext } from "./embedding";
import type { Embedding } from "./embedding";
import styles from "./embed.module.css";

export function EmbeddedApp({ opening }: { opening: Promise<Embedding> }): JSX.Element {
  const [embedding, setEmbedding] = useState<Embedding | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    opening.then(setEmbedding, (error: unknown) => { setProblem(describeError(error)); });
  }, [opening]);
  const expire = useCallback(() => { setProblem("This chat has expired. Reload the page to continue."); }, []);
  if (problem !== "") return <p role="alert" className={styles.notice}>{problem}</p>;
  if (embedding === null) return <div className={styles.notice} aria-busy />;
  return (
    <ErrorBoundary fallback={(error) => <BrokenPage error={error} />}>
      <AnnouncerProvider>
        <EmbeddedSession embedding={embedding} expire={expire} />
      </AnnouncerProvider>
    </ErrorBoundary>
  );
}

function EmbeddedSession({ embedding, expire }: { embedding: Embedding; expire: () => void }): JSX.Element {
  const session = useMemo(() => {
    const { tenant, project, token } = embedding;
    const unsentFiles: UnsentFiles = new Map();
    const backend = new EverturnClient({ tenant, project, token: () => token });
    return { backend, scope: { tenant, project }, isSignedIn: false, unsentFiles, signOut: expire, expire };
  }, [embedding, expire]);
  return (
    <EmbeddedContext value>
      <SessionContext value={session}>
        <Queries>
          <EmbeddedChat agentId={embedding.bundle_id} />
        </Queries>
      </SessionContext>
    </EmbeddedContext>
  );
}

function EmbeddedChat({ agentId }: { agentId: string }): JSX.Element {
  const [opened, setOpened] = useState<{ id: string; first: Pending | null } | null>(null);
  const create = useCallback((id: string, first: Pending | null) => { setOpened({ id, first }); }, []);
  const fork = useCallback((id: string) => { setOpened({ id, first: null }); }, []);
  const begin = useCallback(() => { setOpened(null); }, []);
  return (
    <main className={styles.chat}>
      {opened === null ? <NewConversation agentId={agentId} onCreated={create} /> : (
        <ConversationScreen key={opened.id} conversationId={opened.id} turnId={null} visit={1} first={opened.first} onFork={fork} onNew={begin} onChanged={doNothing} />
      )}
    </main>
  );
}

function doNothing(): void {
  // There is no list of conversations to refresh.
}
