/** Edits of messages that wait to be delivered. */
import { createContext, use } from "react";

export interface Edits {
  /** The unsaved text, by signal id. */
  readonly texts: ReadonlyMap<string, string>;
  write: (signalId: string, text: string) => void;
  /** The edit was saved or discarded. */
  close: (signalId: string) => void;
}

export const EditsContext = createContext<Edits | null>(null);

export function useEdits(): Edits {
  const edits = use(EditsContext);
  if (edits === null) throw new Error("EditsContext is missing around this component.");
  return edits;
}
