/**
 * Announces sentences to screen readers, politely and never token by token. Completed actions and problems are also
 * visible.
 */
import { X } from "lucide-react";
import { createContext, use, useCallback, useEffect, useState } from "react";
import type { JSX, ReactNode } from "react";

import styles from "./announcer.module.css";
import { Button, IconButton } from "./Button";

/** `news` is for screen readers only; `done` and `problem` are visible as well. */
type Kind = "news" | "done" | "problem";

/** An action to offer, such as undo. */
interface Action {
  readonly label: string;
  readonly run: () => void;
}

type Announce = (text: string, kind?: Kind, action?: Action) => void;

interface Shown {
  readonly text: string;
  readonly kind: Exclude<Kind, "news">;
  readonly action: Action | undefined;
}

const AnnounceContext = createContext<Announce | null>(null);
const SHOWN_MS = 12_000;

export function AnnouncerProvider({ children }: { children: ReactNode }): JSX.Element {
  const [said, setSaid] = useState({ text: "", count: 0 });
  const [shown, setShown] = useState<Shown | null>(null);
  const announce = useCallback<Announce>((text, kind = "news", action) => {
    if (text === "") return;
    if (kind !== "news") setShown({ text, kind, action });
    // A problem is an alert, which screen readers announce by themselves.
    if (kind !== "problem") setSaid((before) => ({ text, count: before.count + 1 }));
  }, []);
  return (
    <AnnounceContext value={announce}>
      {children}
      <div className="visually-hidden" role="status" aria-live="polite" aria-atomic="true">
        {/* A repeated sentence is a new element, so that it is announced again. */}
        <span key={said.count}>{said.text}</span>
      </div>
      {shown !== null && <Note shown={shown} onClose={() => { setShown(null); }} />}
    </AnnounceContext>
  );
}

export function useAnnounce(): Announce {
  const announce = use(AnnounceContext);
  if (announce === null) throw new Error("AnnouncerContext is missing around this component.");
  return announce;
}

function Note({ shown, onClose }: { shown: Shown; onClose: () => void }): JSX.Element {
  useEffect(() => {
    const timer = setTimeout(onClose, SHOWN_MS);
    return () => { clearTimeout(timer); };
  });
  const { text, kind, action } = shown;
  return (
    <div className={kind === "problem" ? styles.problem : styles.note} role={kind === "problem" ? "alert" : undefined}>
      <span>{text}</span>
      {action !== undefined && <Button onClick={() => { onClose(); action.run(); }}>{action.label}</Button>}
      <IconButton label="Close" icon={<X aria-hidden />} onClick={onClose} />
    </div>
  );
}
