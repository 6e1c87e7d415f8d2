/** How a conversation in a list is called: its title, and until it has one the first words of its first message. */
import { useQuery } from "@tanstack/react-query";

import type { ConversationView } from "../api";
import { useBackend } from "../session/context";
import { openingOf } from "./openings";
import { nameOf } from "./pages";

/** After a failure it is tried again. */
const AGAIN_MS = 15_000;

export function useName({ conversation_id: id, title, state }: Pick<ConversationView, "conversation_id" | "title" | "state">): string {
  const backend = useBackend();
  const { data } = useQuery({
    queryKey: ["opening", id],
    queryFn: async ({ signal }) => openingOf(await backend.loadTurns(id, {}, signal)),
    // Where nothing went on yet nothing was said: the first turn leaves a title.
    enabled: title.trim() === "" && state !== "idle",
    // What was said first stays the first.
    staleTime: (query) => (isFound(query.state.data) ? Infinity : 0),
    refetchInterval: (query) => (isFound(query.state.data) ? false : AGAIN_MS),
  });
  return nameOf({ title }, data);
}

function isFound(opening: string | undefined): boolean {
  return opening !== undefined && opening !== "";
}
