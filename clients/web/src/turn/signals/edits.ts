/** Edits of messages that wait to be delivered. */
import { createContext, use } from "react";

export interface Edits {
  /** What has been written and not saved yet, by the id of its signal. */
  readonly texts: ReadonlyMap<string, string>;
  write: (signalId: string, text: string) => void;
  /** Saved, or given up. */
  close: (signalId: string) => void;
}

export const EditsContext = createContext<Edits | null>(null);

export function useEdits(): Edits {
  const edits = use(EditsContext);
  if (edits === null) throw new Error("There is no place for edits around this component.");
  return edits;
}
