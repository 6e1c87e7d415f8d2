/** The files of the message being written. */
import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useState } from "react";

import { makeKey } from "../api";
import type { MessageLimits } from "../api";
import { useBackend, useSession } from "../session/context";
import { addFiles, checkType, markRefused, namePasted } from "./attachments";
import type { Attachment, Refusals } from "./attachments";
import { saveUnsentFiles } from "../session/unsentFiles";

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

/** The limits of a message; null while unknown. */
export function useLimits(): MessageLimits | null {
  const backend = useBackend();
  const { data } = useQuery({ queryKey: ["limits"], queryFn: ({ signal }) => backend.loadLimits(signal), staleTime: Infinity });
  return data ?? null;
}

export function useAttachments(conversationId: string, limits: MessageLimits | null): Attachments {
  const { unsentFiles } = useSession();
  const [chosen, setChosen] = useState<Chosen>(() => {
    const { attachments, problem } = addFiles([], unsentFiles.get(conversationId) ?? [], makeKey);
    return { items: attachments, problem };
  });
  const { items } = chosen;
  useEffect(() => { saveUnsentFiles(unsentFiles, conversationId, items.map((item) => item.file)); }, [unsentFiles, conversationId, items]);
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
    // The page may switch to the new conversation before this is rendered.
    saveUnsentFiles(unsentFiles, conversationId, (unsentFiles.get(conversationId) ?? []).filter((file) => !files.has(file)));
  }, [unsentFiles, conversationId]);
  const refuse = useCallback((refusals: Refusals) => {
    setChosen((before) => ({ ...before, items: markRefused(before.items, refusals) }));
  }, []);
  return { ...chosen, add, remove, refuse };
}
