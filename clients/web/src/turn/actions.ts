/** What a person can do with a turn. The functions stay the same, so that a turn is drawn anew only when it changes. */
import { createContext, use } from "react";

import type { Reaction, ToolProgress, TurnView } from "../api";

export interface TurnActions {
  /** Send a suggested question as the next message. */
  ask: (text: string) => void;
  /** Send a message that failed once more, with its files, as a new one. */
  retry: (turn: TurnView) => Promise<void>;
  answerApproval: (approvalId: string, kind: "approve" | "deny", reason: string) => Promise<void>;
  editSignal: (signalId: string, text: string) => Promise<void>;
  retractSignal: (signalId: string) => Promise<void>;
  judge: (turnId: string, reaction: Reaction | null, text: string) => Promise<void>;
  fork: (turnId: string) => Promise<void>;
  /** The whole program of a step. */
  loadProgram: (turnId: string, step: string) => Promise<string>;
}

export const TurnActionsContext = createContext<TurnActions | null>(null);

export function useTurnActions(): TurnActions {
  const actions = use(TurnActionsContext);
  if (actions === null) throw new Error("There is nobody around this component who acts on turns.");
  return actions;
}

/** What running tools say of their work, by call; it is kept nowhere. */
export const ToolProgressContext = createContext<ReadonlyMap<string, ToolProgress>>(new Map());
