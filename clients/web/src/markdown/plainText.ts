/** Markdown as plain text, for places without layout: list rows and screen readers. */

/** Markdown syntax and citations. */
const SIGNS = /\[\[S:[^\]]{0,80}\]\]|^#{1,6} |^>+ |[*`]+|^[|:\s-]+$/gm;
/** HTML that the page renders. */
const BREAK = /<br\s{0,9}\/?>/gi;
const ELEMENT = /<details open>|<\/?(?:sub|sup|kbd|details|summary)>/gi;
const LINK = /\[([^\][]*)\]\([^()\s]*\)/g;

/** The text in one line, without Markdown syntax. */
export function toPlainText(text: string): string {
  return text.replace(BREAK, " ").replace(ELEMENT, "").replace(SIGNS, "").replace(LINK, "$1").replace(/[\s|]+/g, " ").trim();
}
