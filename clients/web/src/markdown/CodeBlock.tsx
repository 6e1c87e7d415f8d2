/** A code block with its language, a copy button, and syntax highlighting once it stops growing. */
import { Check, Copy } from "lucide-react";
import { useEffect, useState } from "react";
import type { JSX, ReactElement } from "react";

import { IconButton } from "../ui/Button";
import { escapeDirectionControls } from "../ui/invisibleCharacters";
import styles from "./CodeBlock.module.css";

interface CodeBlockProps {
  code: string;
  language?: string | undefined;
}

/** Longer code is not highlighted, so that the page never freezes. */
const MAX_COLOURED_CHARS = 30_000;
const REST_MS = 150;
const COPIED_MS = 2_000;

export function CodeBlock({ code, language = "" }: CodeBlockProps): JSX.Element {
  // The original code is copied.
  const shown = escapeDirectionControls(code);
  const coloured = useHighlighted(shown, language);
  return (
    <figure className={styles.figure} aria-label={language === "" ? "Code" : `Code, ${language}`}>
      <figcaption className={styles.caption}>
        <span>{language === "" ? "text" : language}</span>
        <CopyButton text={code} />
      </figcaption>
      {/* Long lines scroll sideways, by keyboard too. */}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls has to take focus */}
      <pre className={styles.pre} tabIndex={0} dir="ltr">
        <code>{coloured ?? shown}</code>
      </pre>
    </figure>
  );
}

function useHighlighted(code: string, language: string): ReactElement | null {
  const [done, setDone] = useState<{ code: string; element: ReactElement | null } | null>(null);
  useEffect(() => {
    if (language === "" || code.length > MAX_COLOURED_CHARS) return;
    let isWanted = true;
    const timer = setTimeout(() => {
      import("./highlighter").then(
        ({ highlight }) => { if (isWanted) setDone({ code, element: highlight(code, language) }); },
        () => undefined, // without the network the code is shown without highlighting
      );
    }, REST_MS);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [code, language]);
  return done?.code === code ? done.element : null;
}

export function CopyButton({ text, label = "Copy code" }: { text: string; label?: string }): JSX.Element {
  const [state, setState] = useState<"idle" | "copied" | "failed">("idle");
  useEffect(() => {
    if (state === "idle") return;
    const timer = setTimeout(() => { setState("idle"); }, COPIED_MS);
    return () => { clearTimeout(timer); };
  }, [state]);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setState("copied");
    } catch {
      // Copying was refused, or the page was loaded without TLS and has no clipboard.
      setState("failed");
    }
  };
  const said = { idle: label, copied: "Copied", failed: "The browser did not allow copying" }[state];
  return <IconButton label={said} icon={state === "copied" ? <Check aria-hidden /> : <Copy aria-hidden />} onClick={copy} />;
}
