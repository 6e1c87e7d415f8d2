/** A text in Markdown as words alone, for where nothing is laid out: a line of a list, or what a screen reader is told. */

/** Signs of Markdown and citations, which say nothing there. */
const SIGNS = /\[\[S:[^\]]{0,80}\]\]|^#{1,6} |^>+ |[*`]+|^[|:\s-]+$/gm;
/** Bits of HTML that the page draws. */
const BREAK = /<br\s{0,9}\/?>/gi;
const ELEMENT = /<details open>|<\/?(?:sub|sup|kbd|details|summary)>/gi;
const LINK = /\[([^\][]*)\]\([^()\s]*\)/g;

/** In one line. */
export function withoutSigns(text: string): string {
  return text.replace(BREAK, " ").replace(ELEMENT, "").replace(SIGNS, "").replace(LINK, "$1").replace(/[\s|]+/g, " ").trim();
}
