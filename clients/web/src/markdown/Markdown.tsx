/** A text in Markdown. While it grows, only its last block is parsed anew. */
import { memo, use, useDeferredValue, useMemo, useState } from "react";
import type { JSX } from "react";

import { PaperContext } from "../ui/printing";
import { showOverrides } from "../ui/unseen";
import { isTooCostly, readDetails, splitBlocks, withoutOpenTable } from "./blocks";
import type { Details } from "./blocks";
import styles from "./Markdown.module.css";
import { OrPlain, Plain } from "./OrPlain";
import { isKept, parse, parseKept } from "./parsed";
import { withoutSigns } from "./withoutSigns";

/** A longer text is shown as it was written first, and its blocks are parsed when the page has time, one by one. */
const LONG_CHARS = 12_000;
/** `<details>` that stands deeper in others stays text. */
const MAX_DETAILS_DEPTH = 4;
/** Often put around a summary. */
const EMPHASIS = /<\/?(?:b|strong|i|em|code)>/gi;

interface MarkdownProps {
  text: string;
  isGrowing?: boolean;
}

export const Markdown = memo(function Markdown({ text, isGrowing = false }: MarkdownProps): JSX.Element {
  // Both at once: what has not grown to its end yet is not taken for the whole.
  const shown = useDeferredValue(useMemo(() => ({ text, isGrowing }), [text, isGrowing]));
  const isOnPaper = use(PaperContext);
  // What was parsed before, and scrolls back into view, keeps its height.
  const [isQuick] = useState(() => isOnPaper || text.length <= LONG_CHARS || isAtHand(text, 0));
  const isParsed = useDeferredValue(true, isQuick);
  if (isParsed) return <Parsed {...shown} />;
  return <div className={styles.markdown} data-markdown><Plain text={text} /></div>;
});

function isAtHand(text: string, depth: number): boolean {
  return splitBlocks(text).every((block) => {
    const details = depth < MAX_DETAILS_DEPTH ? readDetails(block) : null;
    return details === null ? isKept(block) || isTooCostly(block) : isAtHand(details.body, depth + 1);
  });
}

function Parsed({ text, isGrowing }: { text: string; isGrowing: boolean }): JSX.Element {
  const shown = useMemo(() => (isGrowing ? withoutOpenTable(text) : text), [text, isGrowing]);
  return <div className={styles.markdown} data-markdown><Blocks text={shown} isGrowing={isGrowing} depth={0} /></div>;
}

function Blocks({ text, isGrowing, depth }: { text: string; isGrowing: boolean; depth: number }): JSX.Element {
  const blocks = useMemo(() => splitBlocks(text, isGrowing), [text, isGrowing]);
  const last = blocks.length - 1;
  return (
    <>
      {blocks.map((block, at) => (
        // A block keeps its place: text is only ever added at the end.
        <OrPlain key={at} text={block}><Block block={block} isGrowing={isGrowing && at === last} depth={depth} /></OrPlain>
      ))}
    </>
  );
}

const Block = memo(function Block({ block, isGrowing, depth }: { block: string; isGrowing: boolean; depth: number }): JSX.Element {
  const details = depth < MAX_DETAILS_DEPTH ? readDetails(block, isGrowing) : null;
  if (details !== null) return <Folded details={details} isGrowing={isGrowing} depth={depth + 1} />;
  if (isTooCostly(block)) return <Plain text={block} />;
  return isGrowing ? parse(block) : parseKept(block);
});

/** What the answer folds away: a summary in words alone, and a text in Markdown like any other. */
function Folded({ details, isGrowing, depth }: { details: Details; isGrowing: boolean; depth: number }): JSX.Element {
  const isOnPaper = use(PaperContext);
  const { summary, body, isOpen } = details;
  return (
    <details className={styles.details} open={isOpen || isOnPaper}>
      <summary dir="auto">{showOverrides(withoutSigns(summary.replace(EMPHASIS, ""))) || "Details"}</summary>
      <div className={styles.markdown}><Blocks text={body} isGrowing={isGrowing} depth={depth} /></div>
    </details>
  );
}
