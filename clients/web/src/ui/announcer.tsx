/** Says things to screen readers, politely: one sentence at a time, never each token. A problem is shown to everybody. */
import { X } from "lucide-react";
import { createContext, use, useCallback, useEffect, useState } from "react";
import type { JSX, ReactNode } from "react";

import styles from "./announcer.module.css";
import { IconButton } from "./Button";

type Announce = (text: string, kind?: "news" | "problem") => void;

const AnnounceContext = createContext<Announce | null>(null);
const SHOWN_MS = 12_000;

export function AnnouncerProvider({ children }: { children: ReactNode }): JSX.Element {
  const [said, setSaid] = useState({ text: "", count: 0 });
  const [problem, setProblem] = useState("");
  const announce = useCallback<Announce>((text, kind = "news") => {
    if (kind === "problem") setProblem(text);
    else if (text !== "") setSaid((before) => ({ text, count: before.count + 1 }));
  }, []);
  return (
    <AnnounceContext value={announce}>
      {children}
      <div className="visually-hidden" role="status" aria-live="polite" aria-atomic="true">
        {/* A sentence that is said twice is a new element, so that it is read twice. */}
        <span key={said.count}>{said.text}</span>
      </div>
      {problem !== "" && <ProblemNote text={problem} onClose={() => { setProblem(""); }} />}
    </AnnounceContext>
  );
}

export function useAnnounce(): Announce {
  const announce = use(AnnounceContext);
  if (announce === null) throw new Error("There is no announcer around this component.");
  return announce;
}

function ProblemNote({ text, onClose }: { text: string; onClose: () => void }): JSX.Element {
  useEffect(() => {
    const timer = setTimeout(onClose, SHOWN_MS);
    return () => { clearTimeout(timer); };
  });
  return (
    <div className={styles.note} role="alert">
      <span>{text}</span>
      <IconButton label="Close" icon={<X aria-hidden />} onClick={onClose} />
    </div>
  );
}
