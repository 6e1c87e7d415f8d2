/** Parsed Markdown is kept, so that a block that scrolls out and back is not parsed again. Raw HTML stays text. */
import type { Nodes, Root } from "hast";
import type { ReactElement } from "react";
import ReactMarkdown from "react-markdown";
import type { Options } from "react-markdown";
import remarkGfm from "remark-gfm";

import { showOverrides } from "../ui/unseen";
import { ELEMENTS } from "./elements";
import { readInline } from "./inline";
import { protectLiterals, restoreLiterals } from "./literals";

const MAX_KEPT_CHARS = 4_000_000;
const kept = new Map<string, ReactElement>();
let keptChars = 0;

/** Whether the elements of a block are at hand. */
export function isKept(block: string): boolean {
  return kept.has(block);
}

/** The elements of a block that will not change any more. */
export function parseKept(block: string): ReactElement {
  const known = kept.get(block);
  if (known !== undefined) {
    // The map's order is that of last use.
    kept.delete(block);
    kept.set(block, known);
    return known;
  }
  const parsed = parse(block);
  kept.set(block, parsed);
  keptChars += block.length;
  forgetOldest();
  return parsed;
}

/** The elements of a block that still grows. Addresses are judged by the elements that would use them. */
export function parse(block: string): ReactElement {
  const { text, literals } = protectLiterals(block);
  const remarkPlugins: Options["remarkPlugins"] = [remarkGfm, [restoreLiterals, { literals }], readInline];
  return ReactMarkdown({ children: text, remarkPlugins, rehypePlugins: [revealOverrides], components: ELEMENTS, urlTransform: (address) => address });
}

/** A plugin for rehype. Code in a block of its own shows more than these, and copies what was written. */
function revealOverrides(): (tree: Root) => void {
  return reveal;
}

function reveal(node: Nodes): void {
  if (node.type === "text") node.value = showOverrides(node.value);
  if (node.type === "element" && typeof node.properties["alt"] === "string") node.properties["alt"] = showOverrides(node.properties["alt"]);
  if ("children" in node && !(node.type === "element" && node.tagName === "pre")) node.children.forEach(reveal);
}

function forgetOldest(): void {
  for (const block of kept.keys()) {
    if (keptChars <= MAX_KEPT_CHARS) return;
    kept.delete(block);
    keptChars -= block.length;
  }
}
