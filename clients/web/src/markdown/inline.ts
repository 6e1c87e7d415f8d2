/** Renders a few inline HTML elements and removes unknown citations. All other HTML stays text. */
import type { Node, Parent, PhrasingContent, Root, RootContent } from "mdast";

const BREAK = /^<br\s*\/?>$/i;
const BREAKS = /^(?:\s*<br\s*\/?>)+\s*$/i;
/** Harmless inline elements, without attributes. */
const OPENING = /^<(sub|sup|kbd)>$/i;
/** A citation of an unknown source. Known ones were replaced by links before. */
const UNKNOWN_CITATION = /(?<![ \t])[ \t]*\[\[S:[^\]\n]{0,80}\]\]/g;

/** A remark plugin. */
export function readInline(): (tree: Root) => void {
  return visit;
}

function visit(node: Node): void {
  if (node.type === "text") {
    const text = node as Node & { value: string };
    if (text.value.includes("[[S:")) text.value = text.value.replace(UNKNOWN_CITATION, "");
  }
  if (!("children" in node)) return;
  const parent = node as Parent;
  parent.children = readElements(parent.children);
  for (const child of parent.children) visit(child);
}

function readElements(children: readonly RootContent[]): RootContent[] {
  if (!children.some((child) => child.type === "html")) return [...children];
  const ends = findEnds(children);
  const read = (from: number, to: number): RootContent[] => {
    const made: RootContent[] = [];
    for (let at = from; at < to; at += 1) {
      const child = children[at];
      if (child === undefined) continue;
      const end = ends.get(at);
      if (child.type === "html" && BREAK.test(child.value)) made.push({ type: "break" });
      else if (child.type === "html" && BREAKS.test(child.value)) continue;
      else if (child.type === "html" && end !== undefined && end < to) {
        const name = OPENING.exec(child.value)?.[1]?.toLowerCase() ?? "";
        made.push({ type: "emphasis", children: read(at + 1, end) as PhrasingContent[], data: { hName: name } });
        at = end;
      } else made.push(child);
    }
    return made;
  };
  return read(0, children.length);
}

/** Maps each allowed opening tag to its closing tag among its siblings. Overlapping tags stay text. */
function findEnds(children: readonly RootContent[]): ReadonlyMap<number, number> {
  const ends = new Map<number, number>();
  const open: { name: string; at: number }[] = [];
  for (const [at, child] of children.entries()) {
    if (child.type !== "html") continue;
    const opening = OPENING.exec(child.value)?.[1]?.toLowerCase();
    if (opening !== undefined) open.push({ name: opening, at });
    const closing = /^<\/(sub|sup|kbd)>$/i.exec(child.value)?.[1]?.toLowerCase();
    if (closing === undefined || open.at(-1)?.name !== closing) continue;
    const last = open.pop();
    if (last !== undefined) ends.set(last.at, at);
  }
  return ends;
}
