/** A text in Markdown. While it grows, only its last block is parsed anew. */
import { memo, useDeferredValue, useMemo } from "react";
import type { JSX } from "react";

import { splitBlocks } from "./blocks";
import styles from "./Markdown.module.css";
import { parse, parseKept } from "./parsed";

interface MarkdownProps {
  text: string;
  isGrowing?: boolean;
}

export const Markdown = memo(function Markdown({ text, isGrowing = false }: MarkdownProps): JSX.Element {
  const shown = useDeferredValue(text);
  const blocks = useMemo(() => splitBlocks(shown), [shown]);
  const last = blocks.length - 1;
  return (
    <div className={styles.markdown}>
      {blocks.map((block, at) => (
        // A block keeps its place: text is only ever added at the end.
        <Block key={at} block={block} isGrowing={isGrowing && at === last} />
      ))}
    </div>
  );
});

const Block = memo(function Block({ block, isGrowing }: { block: string; isGrowing: boolean }): JSX.Element {
  return isGrowing ? parse(block) : parseKept(block);
});
