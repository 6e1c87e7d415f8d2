/** Renders Markdown. While a text grows, only its last block is parsed again. */
import { memo, use, useDeferredValue, useMemo, useState } from "react";
import type { JSX } from "react";

import { PaperContext } from "../ui/printing";
import { escapeDirectionOverrides } from "../ui/invisibleCharacters";
import { isTooCostly, readDetails, splitBlocks, withoutIncompleteTable } from "./blocks";
import type { Details } from "./blocks";
import styles from "./Markdown.module.css";
import { PlainFallback, Plain } from "./PlainFallback";
import { isCached, parse, parseCached } from "./parseCache";
import { toPlainText } from "./plainText";

/** A longer text is first shown as plain text; its blocks are parsed one by one when the browser is idle. */
const LONG_CHARS = 12_000;
/** `<details>` nested deeper than this stays text. */
const MAX_DETAILS_DEPTH = 4;
/** Models often put this around a summary. */
const EMPHASIS = /<\/?(?:b|strong|i|em|code)>/gi;

interface MarkdownProps {
  text: string;
  isGrowing?: boolean;
}

export const Markdown = memo(function Markdown({ text, isGrowing = false }: MarkdownProps): JSX.Element {
  // Deferred together, so that an unfinished text is never treated as finished.
  const shown = useDeferredValue(useMemo(() => ({ text, isGrowing }), [text, isGrowing]));
  const isOnPaper = use(PaperContext);
  // A text that was parsed before keeps its height when it scrolls back into view.
  const [isQuick] = useState(() => isOnPaper || text.length <= LONG_CHARS || isAtHand(text, 0));
  const isParsed = useDeferredValue(true, isQuick);
  if (isParsed) return <Parsed {...shown} />;
  return <div className={styles.markdown} data-markdown><Plain text={text} /></div>;
});

function isAtHand(text: string, depth: number): boolean {
  return splitBlocks(text).every((block) => {
    const details = depth < MAX_DETAILS_DEPTH ? readDetails(block) : null;
    return details === null ? isCached(block) || isTooCostly(block) : isAtHand(details.body, depth + 1);
  });
}

function Parsed({ text, isGrowing }: { text: string; isGrowing: boolean }): JSX.Element {
  const shown = useMemo(() => (isGrowing ? withoutIncompleteTable(text) : text), [text, isGrowing]);
  return <div className={styles.markdown} data-markdown><Blocks text={shown} isGrowing={isGrowing} depth={0} /></div>;
}

function Blocks({ text, isGrowing, depth }: { text: string; isGrowing: boolean; depth: number }): JSX.Element {
  const blocks = useMemo(() => splitBlocks(text, isGrowing), [text, isGrowing]);
  const last = blocks.length - 1;
  return (
    <>
      {blocks.map((block, at) => (
        // The index is a stable key: text is only ever appended.
        <PlainFallback key={at} text={block}><Block block={block} isGrowing={isGrowing && at === last} depth={depth} /></PlainFallback>
      ))}
    </>
  );
}

const Block = memo(function Block({ block, isGrowing, depth }: { block: string; isGrowing: boolean; depth: number }): JSX.Element {
  const details = depth < MAX_DETAILS_DEPTH ? readDetails(block, isGrowing) : null;
  if (details !== null) return <Folded details={details} isGrowing={isGrowing} depth={depth + 1} />;
  if (isTooCostly(block)) return <Plain text={block} />;
  return isGrowing ? parse(block) : parseCached(block);
});

/** A `<details>` block: a plain summary, and a body in Markdown. */
function Folded({ details, isGrowing, depth }: { details: Details; isGrowing: boolean; depth: number }): JSX.Element {
  const isOnPaper = use(PaperContext);
  const { summary, body, isOpen } = details;
  return (
    <details className={styles.details} open={isOpen || isOnPaper}>
      <summary dir="auto">{escapeDirectionOverrides(toPlainText(summary.replace(EMPHASIS, ""))) || "Details"}</summary>
      <div className={styles.markdown}><Blocks text={body} isGrowing={isGrowing} depth={depth} /></div>
    </details>
  );
}
