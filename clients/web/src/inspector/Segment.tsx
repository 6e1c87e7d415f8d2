/** One part of a request: its origin, its size, and on demand its text. */
import type { JSX } from "react";

import type { ContextSegment } from "../api";
import { Disclosure } from "../ui/Disclosure";
import { formatCount } from "../ui/format";
import { CACHE_WORDS, nameSegment } from "./cache";
import type { ToolNames } from "./cache";
import styles from "./inspector.module.css";

export function Segment({ segment, turnId, tools }: { segment: ContextSegment; turnId: string; tools: ToolNames }): JSX.Element {
  const name = nameSegment(segment, turnId, tools);
  const cache = CACHE_WORDS[segment.cache].name;
  return (
    <Disclosure
      label={`Part ${segment.index + 1}: ${name}, ${formatCount(segment.tokens, "token")}, ${cache}`}
      summary={
        <>
          <span className={`${styles.dot ?? ""} ${styles[segment.cache] ?? ""}`} aria-hidden />
          <span className={styles.name}>{name}</span>
          {segment.cache_point && <span className={styles.point} aria-hidden>cache point</span>}
          <span className={styles.tokens} aria-hidden>{segment.tokens.toLocaleString("en")}</span>
        </>
      }
    >
      {() => (
        <div className={styles.segment}>
          {segment.ref !== undefined && <p className={styles.soft}><code>{segment.ref}</code></p>}
          <p className={styles.soft}>{cache}. {formatCount(segment.chars, "character")}{segment.form === undefined ? "" : `, shown as “${segment.form}”`}.</p>
          {segment.text === undefined ? (
            <p className={styles.soft}>Text not available: {segment.note ?? "it is not stored"}.</p>
          ) : (
            // Scrollable by keyboard too.
            // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls has to take focus
            <pre className={styles.text} tabIndex={0}>{segment.text}</pre>
          )}
        </div>
      )}
    </Disclosure>
  );
}
