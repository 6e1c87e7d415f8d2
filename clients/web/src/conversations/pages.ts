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

const STATES: Readonly<Record<ConversationView["state"], string>> = {
  idle: "",
  queued: "waiting to start",
  running: "working",
  waiting: "waits for you",
  error: "failed",
  unknown: "",
};

/** What is going on in a conversation; empty when nothing is. */
export function sayState(state: ConversationView["state"]): string {
  return lookUp(STATES, state, "");
}
