/** The files of the message that is being written. */
import { useCallback, useEffect, useState } from "react";

import { makeKey } from "../api";
import { useSession } from "../session/context";
import { addFiles, markRefused, namePasted } from "./attachments";
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

export function useAttachments(conversationId: string): Attachments {
  const { keptFiles } = useSession();
  const [chosen, setChosen] = useState<Chosen>(() => {
    const { attachments, problem } = addFiles([], keptFiles.get(conversationId) ?? [], makeKey);
    return { items: attachments, problem };
  });
  const { items } = chosen;
  useEffect(() => { keepFiles(keptFiles, conversationId, items.map((item) => item.file)); }, [keptFiles, conversationId, items]);
  const add = useCallback((files: readonly File[]) => {
    if (files.length === 0) return;
    setChosen((before) => {
      const named = files.map((file, at) => namePasted(file, before.items.length + at + 1));
      const { attachments, problem } = addFiles(before.items, named, makeKey);
      return { items: attachments, problem };
    });
  }, []);
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
