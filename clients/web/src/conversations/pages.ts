/** Pages of conversations as one list, and how a conversation is named. */
import type { ConversationList, ConversationView } from "../api";
import { lookUp } from "../ui/format";

/** A conversation that moved between two pages while they were read appears once, as last read. */
export function joinPages(pages: readonly ConversationList[]): readonly ConversationView[] {
  const byId = new Map<string, ConversationView>();
  for (const conversation of pages.flatMap((page) => page.items)) byId.set(conversation.conversation_id, conversation);
  return [...byId.values()];
}

/** The maximum length of a title. */
const MAX_TITLE_CHARS = 200;
const FORK = " (fork)";

/** The name of a fork; a fork of a fork is marked only once. */
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

/** The activity of a conversation; empty if there is none. */
export function describeState(state: ConversationView["state"]): string {
  return lookUp(STATES, state, "");
}

/** How long a failure is shown to a user who has not seen it. */
const FAILURE_FRESH_MS = 60 * 60_000;
const MAX_SEEN = 1_000;
const seenFailures = new Map<string, string>();

/** The user has opened the conversation and seen that it failed; `at` is when it failed. */
export function markFailureSeen(conversationId: string, at: string): void {
  seenFailures.set(conversationId, at);
  for (const oldest of [...seenFailures.keys()].slice(0, -MAX_SEEN)) seenFailures.delete(oldest);
}

/** Whether the failure was seen or is long past; then the row shows its time instead. */
export function isStaleFailure(conversationId: string, at: string, now: number): boolean {
  return seenFailures.get(conversationId) === at || now - Date.parse(at) > FAILURE_FRESH_MS;
}
