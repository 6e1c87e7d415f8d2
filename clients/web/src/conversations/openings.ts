/** The first words of a conversation, by which it is called while it has no title of its own. */
import type { StateView } from "../api";

/** As long as the titles are that the server makes of a first message. */
const MAX_CHARS = 60;
/** Of a message this much is looked at; white space may be most of it. */
const MAX_READ_CHARS = 4_000;
const FENCE = "```";

/** One line, cut at a word and before a block of code; the names of its files where a message is without words. */
export function makeOpening(text: string, filenames: readonly string[] = []): string {
  const read = text.slice(0, MAX_READ_CHARS);
  const [words = ""] = read.split(FENCE, 1);
  const code = read.slice(words.length).replaceAll(FENCE, " ");
  return [words, code, filenames.join(", ")].map(cutLine).find((line) => line !== "") ?? "";
}

/** Empty where the first turn was not read, or nobody said anything in it. */
export function openingOf({ turns, next_cursor: older }: Pick<StateView, "turns" | "next_cursor">): string {
  const first = turns[0];
  if (first === undefined || older !== undefined) return "";
  return makeOpening(first.text, first.attachments.map((file) => file.filename));
}

function cutLine(text: string): string {
  const line = text.replace(/\s+/g, " ").trim().replace(/:+$/, "");
  const chars = Array.from(line);
  if (chars.length <= MAX_CHARS) return line;
  const cut = chars.slice(0, MAX_CHARS).join("");
  const end = cut.lastIndexOf(" ");
  return `${(end > 0 ? cut.slice(0, end) : cut).replace(/[,;:.]+$/, "")}…`;
}
