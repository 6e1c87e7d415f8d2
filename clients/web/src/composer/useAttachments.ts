/** The files of the message that is being written. */
import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useState } from "react";

import { makeKey } from "../api";
import type { MessageLimits } from "../api";
import { useBackend, useSession } from "../session/context";
import { addFiles, checkType, markRefused, namePasted } from "./attachments";
import type { Attachment, Refusals } from "./attachments";
import { keepFiles } from "./keptFiles";

export interface Attachments {
  items: readonly Attachment[];
  problem: string;
  add: (files: readonly File[]) => void;
  remove: (items: readonly Attachment[]) => void;
  refuse: (refusals: Refusals) => void;
}

interface Chosen {
  items: readonly Attachment[];
  problem: string;
}

/** How large a message may be here; null until that is known. */
export function useLimits(): MessageLimits | null {
  const backend = useBackend();
  const { data } = useQuery({ queryKey: ["limits"], queryFn: ({ signal }) => backend.loadLimits(signal), staleTime: Infinity });
  return data ?? null;
}

export function useAttachments(conversationId: string, limits: MessageLimits | null): Attachments {
  const { keptFiles } = useSession();
  const [chosen, setChosen] = useState<Chosen>(() => {
    const { attachments, problem } = addFiles([], keptFiles.get(conversationId) ?? [], makeKey);
    return { items: attachments, problem };
  });
  const { items } = chosen;
  useEffect(() => { keepFiles(keptFiles, conversationId, items.map((item) => item.file)); }, [keptFiles, conversationId, items]);
  const add = useCallback((files: readonly File[]) => {
    if (files.length === 0) return;
    const take = (accepted: readonly File[], refused: readonly string[]): void => {
      setChosen((before) => {
        const named = accepted.map((file, at) => namePasted(file, before.items.length + at + 1));
        const { attachments, problem } = addFiles(before.items, named, makeKey, limits);
        return { items: attachments, problem: [...refused, problem].filter((each) => each !== "").join(" ") };
      });
    };
    if (limits === null) {
      take(files, []);
      return;
    }
    void Promise.all(files.map((file) => checkType(file, limits))).then((problems) => {
      take(files.filter((_, at) => problems[at] === ""), problems.filter((problem) => problem !== ""));
    });
  }, [limits]);
  const remove = useCallback((removed: readonly Attachment[]) => {
    const ids = new Set(removed.map((item) => item.id));
    const files = new Set(removed.map((item) => item.file));
    setChosen((before) => ({ items: before.items.filter((item) => !ids.has(item.id)), problem: "" }));
    // The page may go on to the new conversation before this is drawn.
    keepFiles(keptFiles, conversationId, (keptFiles.get(conversationId) ?? []).filter((file) => !files.has(file)));
  }, [keptFiles, conversationId]);
  const refuse = useCallback((refusals: Refusals) => {
    setChosen((before) => ({ ...before, items: markRefused(before.items, refusals) }));
  }, []);
  return { ...chosen, add, remove, refuse };
}
