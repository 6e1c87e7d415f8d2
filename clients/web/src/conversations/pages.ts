/** Pages of conversations as one list, and how a conversation is called. */
import type { ConversationList, ConversationView } from "../api";
import { lookUp } from "../ui/wording";

/** A conversation that moved between two pages while they were read is there once, as it was read last. */
export function joinPages(pages: readonly ConversationList[]): readonly ConversationView[] {
  const byId = new Map<string, ConversationView>();
  for (const conversation of pages.flatMap((page) => page.items)) byId.set(conversation.conversation_id, conversation);
  return [...byId.values()];
}

/** `opening` are the first words of a conversation that has no title yet. */
export function nameOf(conversation: Pick<ConversationView, "title">, opening = ""): string {
  if (conversation.title.trim() !== "") return conversation.title;
  return opening === "" ? "New conversation" : opening;
}

/** As long as a title may be. */
const MAX_TITLE_CHARS = 200;
const FORK = " (fork)";

/** How a fork of a conversation is called; a fork of a fork is one fork. */
export function nameFork(name: string): string {
  const original = name.endsWith(FORK) ? name.slice(0, -FORK.length) : name;
  return `${original.slice(0, MAX_TITLE_CHARS - FORK.length)}${FORK}`;
}

const STATES: Readonly<Record<ConversationView["state"], string>> = {
  idle: "",
  queued: "waiting to start",
  running: "working",
  waiting: "needs approval",
  error: "failed",
  unknown: "",
};

/** What is going on in a conversation; empty when nothing is. */
export function sayState(state: ConversationView["state"]): string {
  return lookUp(STATES, state, "");
}

/** So long a failure is news to somebody who has not seen it. */
const FAILURE_NEWS_MS = 60 * 60_000;
const MAX_SEEN = 1_000;
const seenFailures = new Map<string, string>();

/** The person has opened the conversation and seen that it failed; `at` is when it did. */
export function markFailureSeen(conversationId: string, at: string): void {
  seenFailures.set(conversationId, at);
  for (const oldest of [...seenFailures.keys()].slice(0, -MAX_SEEN)) seenFailures.delete(oldest);
}

/** Whether the failure was seen or is long ago; then its time says more. */
export function isOldNews(conversationId: string, at: string, now: number): boolean {
  return seenFailures.get(conversationId) === at || now - Date.parse(at) > FAILURE_NEWS_MS;
}
