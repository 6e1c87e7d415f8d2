/** A text in Markdown. While it grows, only its last block is parsed anew. */
import { memo, use, useDeferredValue, useMemo, useState } from "react";
import type { JSX } from "react";

import { PaperContext } from "../ui/printing";
import { isTooCostly, splitBlocks, withoutOpenTable } from "./blocks";
import styles from "./Markdown.module.css";
import { OrPlain, Plain } from "./OrPlain";
import { isKept, parse, parseKept } from "./parsed";

/** A longer text is shown as it was written first, and its blocks are parsed when the page has time, one by one. */
const LONG_CHARS = 12_000;

interface MarkdownProps {
  text: string;
  isGrowing?: boolean;
}

export const Markdown = memo(function Markdown({ text, isGrowing = false }: MarkdownProps): JSX.Element {
  const shown = useDeferredValue(text);
  const isOnPaper = use(PaperContext);
  // What was parsed before, and scrolls back into view, keeps its height.
  const [isQuick] = useState(() => isOnPaper || text.length <= LONG_CHARS || splitBlocks(text).every((block) => isKept(block) || isTooCostly(block)));
  const isParsed = useDeferredValue(true, isQuick);
  if (isParsed) return <Parsed text={shown} isGrowing={isGrowing} />;
  return <div className={styles.markdown} data-markdown><Plain text={text} /></div>;
});

function Parsed({ text: shown, isGrowing }: { text: string; isGrowing: boolean }): JSX.Element {
  const blocks = useMemo(() => splitBlocks(isGrowing ? withoutOpenTable(shown) : shown), [shown, isGrowing]);
  const last = blocks.length - 1;
  return (
    <div className={styles.markdown} data-markdown>
      {blocks.map((block, at) => (
        // A block keeps its place: text is only ever added at the end.
        <OrPlain key={at} text={block}><Block block={block} isGrowing={isGrowing && at === last} /></OrPlain>
      ))}
    </div>
  );
}

const Block = memo(function Block({ block, isGrowing }: { block: string; isGrowing: boolean }): JSX.Element {
  if (isTooCostly(block)) return <Plain text={block} />;
  return isGrowing ? parse(block) : parseKept(block);
});
