/** Why an answer failed, for the user. Other details that the server reports are for its operators. */
import type { Problem } from "../api";

export interface Failure {
  /** One sentence: what happened. */
  readonly what: string;
  /** What the user can do about it; empty if unknown. */
  readonly advice: string;
  /** The server's own text, shown on demand; empty if it adds nothing. */
  readonly details: string;
  /** Whether the same message could succeed if it is sent again. */
  readonly isRetryable: boolean;
}

const PREFIX = "urn:everturn:problem:";
/** The type of failures that would happen again with the same message. */
const PERMANENT = `${PREFIX}model-failed`;
const KNOWN: Readonly<Record<string, Pick<Failure, "what" | "advice">>> = {
  "model-unavailable": { what: "The model didn’t answer.", advice: "Try again in a moment." },
  "model-failed": { what: "The model can’t answer.", advice: "The same message would fail again. Contact your administrator." },
  "model-refused": { what: "The model declined to answer.", advice: "Change your message and try again." },
  "content-filtered": { what: "The model provider’s content filter blocked the answer.", advice: "Change your message and try again." },
  "internal-error": { what: "The server failed while working on this answer.", advice: "Try again. If it fails again, contact your administrator." },
  "context-limit": { what: "This conversation is too long for the model.", advice: "Start a new conversation." },
  "no-closing-answer": { what: "The model gave no usable answer.", advice: "Try again, or rephrase the question." },
  "output-limit": { what: "The model used up its output limit before it answered.", advice: "Ask for less in one message, or split the question." },
  "workflow-failed": { what: "This agent failed while working on the answer.", advice: "Try again. If it fails again, contact your administrator." },
  "turn-given-up": { what: "The server could not finish this answer.", advice: "Try again." },
};

export function describeFailure(error: Problem): Failure {
  const known = error.type.startsWith(PREFIX) ? KNOWN[error.type.slice(PREFIX.length)] : undefined;
  const { what, advice } = known ?? { what: asSentence(error.title), advice: "" };
  const title = asSentence(error.title);
  const detail = asSentence(withoutPrefix(error.detail, error.title));
  const details = detail === "" ? title : detail;
  return { what, advice, details: isSame(details, what) ? "" : details, isRetryable: error.type !== PERMANENT };
}

function withoutPrefix(text: string, prefix: string): string {
  const bare = prefix.replace(/\.+$/, "");
  return bare !== "" && text.startsWith(bare) ? text.slice(bare.length).replace(/^[.:\s]+/, "") : text;
}

function asSentence(text: string): string {
  const bare = text.trim().replace(/\.+$/, "");
  if (bare === "") return "";
  return /[!?…]$/.test(bare) ? bare : `${bare}.`;
}

function isSame(one: string, other: string): boolean {
  return one.replaceAll("’", "'").toLowerCase() === other.replaceAll("’", "'").toLowerCase();
}
