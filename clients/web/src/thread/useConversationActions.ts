/** What the person does with turns of one conversation, told to the server. */
import { useMemo } from "react";

import { makeKey } from "../api";
import type { Accepted } from "../api";
import type { Draft } from "../composer/useSending";
import { useBackend } from "../session/context";
import { tellTabs } from "../session/tabs";
import type { TurnActions } from "../turn/actions";
import { useAnnounce } from "../ui/announcer";
import { sayError } from "../ui/wording";

interface Wiring {
  conversationId: string;
  onFork: (conversationId: string) => void;
  onAccepted: (accepted: Accepted, draft: Draft) => void;
  refreshTurn: (turnId: string) => Promise<void>;
}

export function useConversationActions({ conversationId, onFork, onAccepted, refreshTurn }: Wiring): TurnActions {
  const backend = useBackend();
  const announce = useAnnounce();
  return useMemo(
    () => ({
      ask: (text) => {
        const draft: Draft = { text, files: [] };
        backend.sendMessage(conversationId, { ...draft, key: makeKey() }).then(
          (accepted) => { onAccepted(accepted, draft); },
          (error: unknown) => { announce(sayError(error), "problem"); },
        );
      },
      answerApproval: async (approvalId, kind, reason) => {
        await backend.sendSignal(conversationId, { kind, approvalId, text: reason });
      },
      editSignal: async (signalId, text) => {
        await backend.editSignal(conversationId, signalId, text);
      },
      retractSignal: async (signalId) => {
        await backend.retractSignal(conversationId, signalId);
      },
      judge: async (turnId, reaction, text) => {
        const receipt = await backend.judgeTurn(conversationId, turnId, reaction, text);
        await refreshTurn(turnId);
        tellTabs({ kind: "judged", conversationId, turnId });
        announce(receipt.cleared ? "Your judgement is cleared." : "Your judgement is kept.");
      },
      fork: async (turnId) => {
        const forked = await backend.forkConversation(conversationId, turnId);
        onFork(forked.conversation_id);
      },
    }),
    [backend, announce, conversationId, onFork, onAccepted, refreshTurn],
  );
}
