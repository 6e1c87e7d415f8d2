/** The files of the message that is being written. */
import { useCallback, useState } from "react";

import { makeKey } from "../api";
import { addFiles, markRefused, namePasted } from "./attachments";
import type { Attachment } from "./attachments";

export interface Attachments {
  items: readonly Attachment[];
  problem: string;
  add: (files: readonly File[]) => void;
  remove: (ids: readonly string[]) => void;
  refuse: (message: string) => void;
}

interface Chosen {
  items: readonly Attachment[];
  problem: string;
}

const NOTHING: Chosen = { items: [], problem: "" };

export function useAttachments(): Attachments {
  const [chosen, setChosen] = useState<Chosen>(NOTHING);
  const add = useCallback((files: readonly File[]) => {
    if (files.length === 0) return;
    setChosen((before) => {
      const named = files.map((file, at) => namePasted(file, before.items.length + at + 1));
      const { attachments, problem } = addFiles(before.items, named, makeKey);
      return { items: attachments, problem };
    });
  }, []);
  const remove = useCallback((ids: readonly string[]) => {
    setChosen((before) => ({ items: before.items.filter((item) => !ids.includes(item.id)), problem: "" }));
  }, []);
  const refuse = useCallback((message: string) => {
    setChosen((before) => ({ ...before, items: markRefused(before.items, message) }));
  }, []);
  return { ...chosen, add, remove, refuse };
}
