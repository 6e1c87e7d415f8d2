/** The first words of a conversation, which name it until it has a title. */
import type { StateView } from "../api";

/** As long as the titles that the server makes from a first message. */
const MAX_CHARS = 60;
/** How much of a message is examined; most of it may be white space. */
const MAX_READ_CHARS = 4_000;
const FENCE = "```";

/** One line, cut between words and before a code block; the names of the files if a message has no text. */
export function makeOpening(text: string, filenames: readonly string[] = []): string {
  const read = text.slice(0, MAX_READ_CHARS);
  const [words = ""] = read.split(FENCE, 1);
  const code = read.slice(words.length).replaceAll(FENCE, " ");
  return [words, code, filenames.join(", ")].map(cutLine).find((line) => line !== "") ?? "";
}

/** Empty if the first turn was not loaded or has no text. */
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
