/** A cache of parsed Markdown, so that a block that scrolls out and back is not parsed again. Raw HTML stays text. */
import type { Nodes, Root } from "hast";
import type { ReactElement } from "react";
import ReactMarkdown from "react-markdown";
import type { Options } from "react-markdown";
import remarkGfm from "remark-gfm";

import { escapeDirectionOverrides } from "../ui/invisibleCharacters";
import { ELEMENTS } from "./elements";
import { readInline } from "./inline";
import { protectLiterals, restoreLiterals } from "./literals";

const MAX_CACHED_CHARS = 4_000_000;
const kept = new Map<string, ReactElement>();
let cachedChars = 0;

/** Whether the elements of a block are cached. */
export function isCached(block: string): boolean {
  return kept.has(block);
}

/** The elements of a finished block, from the cache. */
export function parseCached(block: string): ReactElement {
  const known = kept.get(block);
  if (known !== undefined) {
    // Reinsert it: the map is ordered by last use.
    kept.delete(block);
    kept.set(block, known);
    return known;
  }
  const parsed = parse(block);
  kept.set(block, parsed);
  cachedChars += block.length;
  forgetOldest();
  return parsed;
}

/** The elements of a block that still grows. Addresses are checked by the elements that use them. */
export function parse(block: string): ReactElement {
  const { text, literals } = protectLiterals(block);
  const remarkPlugins: Options["remarkPlugins"] = [remarkGfm, [restoreLiterals, { literals }], readInline];
  return ReactMarkdown({ children: text, remarkPlugins, rehypePlugins: [revealOverrides], components: ELEMENTS, urlTransform: (address) => address });
}

/** A rehype plugin. Code blocks are skipped: they show more of these characters, and copy the original text. */
function revealOverrides(): (tree: Root) => void {
  return reveal;
}

function reveal(node: Nodes): void {
  if (node.type === "text") node.value = escapeDirectionOverrides(node.value);
  if (node.type === "element" && typeof node.properties["alt"] === "string") node.properties["alt"] = escapeDirectionOverrides(node.properties["alt"]);
  if ("children" in node && !(node.type === "element" && node.tagName === "pre")) node.children.forEach(reveal);
}

function forgetOldest(): void {
  for (const block of kept.keys()) {
    if (cachedChars <= MAX_CACHED_CHARS) return;
    kept.delete(block);
    cachedChars -= block.length;
  }
}
