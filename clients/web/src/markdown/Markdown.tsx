/** A text in Markdown. While it grows, only its last block is parsed anew. */
import { memo, useDeferredValue, useMemo } from "react";
import type { JSX } from "react";

import { splitBlocks, withoutOpenTable } from "./blocks";
import styles from "./Markdown.module.css";
import { OrPlain, Plain } from "./OrPlain";
import { parse, parseKept } from "./parsed";

/** A block that is longer, or nests deeper in one line, is shown as it was written, so that no page stands still for it. */
const MAX_BLOCK_CHARS = 200_000;
const TOO_DEEP = /^(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))){100}/m;

interface MarkdownProps {
  text: string;
  isGrowing?: boolean;
}

export const Markdown = memo(function Markdown({ text, isGrowing = false }: MarkdownProps): JSX.Element {
  const shown = useDeferredValue(text);
  const blocks = useMemo(() => splitBlocks(isGrowing ? withoutOpenTable(shown) : shown), [shown, isGrowing]);
  const last = blocks.length - 1;
  return (
    <div className={styles.markdown}>
      {blocks.map((block, at) => (
        // A block keeps its place: text is only ever added at the end.
        <OrPlain key={at} text={block}><Block block={block} isGrowing={isGrowing && at === last} /></OrPlain>
      ))}
    </div>
  );
});

const Block = memo(function Block({ block, isGrowing }: { block: string; isGrowing: boolean }): JSX.Element {
  if (block.length > MAX_BLOCK_CHARS || TOO_DEEP.test(block)) return <Plain text={block} />;
  return isGrowing ? parse(block) : parseKept(block);
});
