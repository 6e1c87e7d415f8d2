/** One conversation as shown: live, with older turns on demand. */
import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";

import { ConversationStream, ProblemError } from "../api";
import type { ConversationSnapshot } from "../api";
import { useBackend, useSession } from "../session/context";
import { onTabMessage } from "../session/tabs";
import { useAnnounce } from "../ui/announcer";
import { describeError } from "../ui/format";

export interface Conversation {
  live: ConversationSnapshot;
  /** Why older turns could not be loaded; empty if they could. */
  olderProblem: string;
  loadOlder: () => void;
  /** Load older turns until this one is there; false if there is no such turn. */
  loadBackTo: (turnId: string, stop: AbortSignal) => Promise<boolean>;
  /** Reload a turn after it was rated: ratings are not part of the stream. */
  refreshTurn: (turnId: string) => Promise<void>;
}

export function useConversation(conversationId: string): Conversation {
  const backend = useBackend();
  const { expire } = useSession();
  const announce = useAnnounce();
  const stream = useMemo(() => new ConversationStream(backend, conversationId), [backend, conversationId]);
  const live = useSyncExternalStore(stream.subscribe, stream.getSnapshot);
  const isUnknown = live.connection === "refused" && live.problem instanceof ProblemError && live.problem.status === 401;
  useEffect(() => {
    if (isUnknown) expire();
  }, [isUnknown, expire]);
  const refreshTurn = useCallback(
    async (turnId: string) => { stream.putTurn(await backend.getTurn(conversationId, turnId)); },
    [backend, conversationId, stream],
  );
  useEffect(
    () =>
      onTabMessage((news) => {
        if (news.kind !== "rated" || news.conversationId !== conversationId) return;
        refreshTurn(news.turnId).catch((error: unknown) => { announce(describeError(error), "problem"); });
      }),
    [conversationId, refreshTurn, announce],
  );
  const loadBackTo = useCallback((turnId: string, stop: AbortSignal) => stream.loadBackTo(turnId, stop), [stream]);
  return { live, refreshTurn, loadBackTo, ...useOlder(stream, live.state?.next_cursor !== undefined) };
}

function useOlder(stream: ConversationStream, hasOlder: boolean): { loadOlder: () => void; olderProblem: string } {
  const [olderProblem, setProblem] = useState("");
  const isWanted = useRef(false);
  useEffect(() => { isWanted.current = hasOlder; }, [hasOlder]);
  const loadOlder = useCallback(() => {
    if (!isWanted.current) return;
    setProblem("");
    stream.loadOlder().catch((error: unknown) => { setProblem(describeError(error)); });
  }, [stream]);
  return { loadOlder, olderProblem };
}
