/** The user's actions on the messages of one conversation, sent to the server. */
import { useMemo } from "react";

import { makeKey } from "../api";
import type { Accepted, EverturnClient, FileView } from "../api";
import type { Draft } from "../composer/useSending";
import { nameFork } from "../conversations/pages";
import { useBackend } from "../session/context";
import { notifyTabs } from "../session/tabs";
import type { TurnActions } from "../turn/actions";
import { useAnnounce } from "../ui/announcer";
import { describeError } from "../ui/format";

interface Wiring {
  conversationId: string;
  /** The name of the conversation. */
  name: string;
  onFork: (conversationId: string) => void;
  onAccepted: (accepted: Accepted, draft: Draft) => void;
  refreshTurn: (turnId: string) => Promise<void>;
}

export function useConversationActions({ conversationId, name, onFork, onAccepted, refreshTurn }: Wiring): TurnActions {
  const backend = useBackend();
  const announce = useAnnounce();
  return useMemo(
    () => ({
      send: (text) => {
        const draft: Draft = { text, files: [] };
        backend.sendMessage(conversationId, { ...draft, key: makeKey() }).then(
          (accepted) => { onAccepted(accepted, draft); },
          (error: unknown) => { announce(describeError(error), "problem"); },
        );
      },
      retry: async (turn) => {
        const files = await Promise.all(turn.attachments.map((file) => loadAgain(backend, file)));
        const draft: Draft = { text: turn.text, files };
        onAccepted(await backend.sendMessage(conversationId, { ...draft, key: makeKey() }), draft);
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
      rate: async (turnId, reaction, text) => {
        const receipt = await backend.rateTurn(conversationId, turnId, reaction, text);
        await refreshTurn(turnId);
        notifyTabs({ kind: "rated", conversationId, turnId });
        announce(receipt.cleared ? "Feedback removed." : "Feedback saved.");
      },
      loadProgram: async (turnId, step) => (await backend.getStep(conversationId, turnId, step)).code ?? "",
      fork: async (turnId) => {
        const forked = await backend.forkConversation(conversationId, { turnId, title: nameFork(name) });
        onFork(forked.conversation_id);
        announce("Forked to a new conversation.", "done");
      },
    }),
    [backend, announce, conversationId, name, onFork, onAccepted, refreshTurn],
  );
}

async function loadAgain(backend: EverturnClient, file: FileView): Promise<File> {
  return new File([await backend.loadFile(file)], file.filename, { type: file.mime });
}
