/** The name of a conversation in a list: its title, or until it has one the first words of its first message. */
import { useQuery } from "@tanstack/react-query";

import type { ConversationView } from "../api";
import { useBackend } from "../session/context";
import { formatName } from "../ui/format";
import { openingOf } from "./openings";

/** Delay before a retry after a failure. */
const RETRY_MS = 15_000;

export function useName({ conversation_id: id, title, state }: Pick<ConversationView, "conversation_id" | "title" | "state">): string {
  const backend = useBackend();
  const { data } = useQuery({
    queryKey: ["opening", id],
    queryFn: async ({ signal }) => openingOf(await backend.loadTurns(id, {}, signal)),
    // An idle conversation without a title has no turn: the first turn sets a title.
    enabled: title.trim() === "" && state !== "idle",
    // The first words never change.
    staleTime: (query) => (isFound(query.state.data) ? Infinity : 0),
    refetchInterval: (query) => (isFound(query.state.data) ? false : RETRY_MS),
  });
  return formatName({ title }, data);
}

function isFound(opening: string | undefined): boolean {
  return opening !== undefined && opening !== "";
}
