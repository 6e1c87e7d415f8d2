/** The model's thinking, collapsed; while it streams, its last words are in the summary line. */
import { Lightbulb } from "lucide-react";
import type { JSX } from "react";

import { Markdown } from "../../markdown/Markdown";
import { Disclosure } from "../../ui/Disclosure";
import { oneLine } from "../../ui/format";
import styles from "./work.module.css";

const TEASER_CHARS = 110;

export function Thinking({ text, isGrowing }: { text: string; isGrowing: boolean }): JSX.Element {
  const said = isGrowing ? "Thinking" : "Thought";
  return (
    <Disclosure
      className={styles.thinking}
      label={said}
      summary={
        <>
          <Lightbulb className={styles.icon} aria-hidden />
          <span>{said}</span>
          <span className={styles.teaser} aria-hidden>{oneLine(text.slice(isGrowing ? -TEASER_CHARS : 0), TEASER_CHARS)}</span>
        </>
      }
    >
      {() => <div className={styles.thought}><Markdown text={text} isGrowing={isGrowing} /></div>}
    </Disclosure>
  );
}
