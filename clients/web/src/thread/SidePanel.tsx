/** The conversation with a panel beside it: a file, a document being written, a widget, the project, or what the model saw. */
import { Suspense, lazy, useCallback, useMemo, useRef, useState } from "react";
import type { JSX, ReactNode } from "react";

import type { TurnView } from "../api";
import { ArtifactsContext } from "../files/artifacts";
import type { ArtifactTarget } from "../files/artifacts";
import { Panel } from "../artifacts/Panel";
import { ErrorBoundary } from "../ui/ErrorBoundary";
import { useBackCloses } from "../ui/useBackCloses";
import { useMedia } from "../ui/useMedia";
import styles from "./thread.module.css";

const ArtifactPanel = lazy(() => import("../artifacts/ArtifactPanel"));
const WidgetPanel = lazy(() => import("../widgets/WidgetPanel"));
const InspectorPanel = lazy(() => import("../inspector/InspectorPanel"));
const ProjectPanel = lazy(() => import("../project/ProjectPanel"));

/** Whether the panel covers the conversation, as in the style sheet; print does not matter. */
const NO_ROOM_BESIDE = "screen and (max-width: 62rem)";

interface SidePanelProps {
  conversationId: string;
  turns: readonly TurnView[];
  children: ReactNode;
}

export function SidePanel({ conversationId, turns, children }: SidePanelProps): JSX.Element {
  const [target, setTarget] = useState<ArtifactTarget | null>(null);
  const opener = useRef<Element | null>(null);
  const artifacts = useMemo(
    () => ({
      open: (wanted: ArtifactTarget): void => {
        opener.current = document.activeElement;
        setTarget(wanted);
      },
    }),
    [],
  );
  const close = useCallback(() => {
    setTarget(null);
    // Return the focus to where the panel was opened.
    if (opener.current instanceof HTMLElement) opener.current.focus({ preventScroll: true });
  }, []);
  useBackCloses("panel", useMedia(NO_ROOM_BESIDE) && target !== null, close);
  return (
    <ArtifactsContext value={artifacts}>
      <div className={target === null ? styles.alone : styles.split}>
        {children}
        {target !== null && (
          <ErrorBoundary key={JSON.stringify(target)} fallback={(error) => <BrokenPanel error={error} onClose={close} />}>
            <Suspense fallback={<aside className={styles.panelWaiting} aria-busy />}>
              {target.kind === "context" && (
                <InspectorPanel conversationId={conversationId} turnId={target.turnId} turns={turns} rounds={target.rounds} onClose={close} />
              )}
              {target.kind === "project" && <ProjectPanel conversationId={conversationId} turns={turns} onClose={close} />}
              {target.kind === "widget" && (
                <WidgetPanel agentId={target.agentId} widget={target.widget} conversationId={conversationId} turns={turns} onClose={close} />
              )}
              {(target.kind === "file" || target.kind === "written") && <ArtifactPanel target={target} turns={turns} onClose={close} />}
            </Suspense>
          </ErrorBoundary>
        )}
      </div>
    </ArtifactsContext>
  );
}

/** Shown if the panel could not be loaded or failed to render. */
function BrokenPanel({ error, onClose }: { error: Error; onClose: () => void }): JSX.Element {
  return (
    <Panel title="Couldn’t open this" details="" onClose={onClose}>
      <p role="alert">{error.message}. Try reloading the page; nothing is lost.</p>
    </Panel>
  );
}
