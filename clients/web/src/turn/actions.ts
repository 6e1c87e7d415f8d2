/** The user's actions on a turn. The functions are stable, so that a turn renders again only when it changes. */
import { createContext, use } from "react";

import type { Reaction, ToolProgress, TurnView } from "../api";

export interface TurnActions {
  /** Send a suggested question as the next message. */
  send: (text: string) => void;
  /** Send a failed message again, with its files, as a new one. */
  retry: (turn: TurnView) => Promise<void>;
  answerApproval: (approvalId: string, kind: "approve" | "deny", reason: string) => Promise<void>;
  editSignal: (signalId: string, text: string) => Promise<void>;
  retractSignal: (signalId: string) => Promise<void>;
  rate: (turnId: string, reaction: Reaction | null, text: string) => Promise<void>;
  fork: (turnId: string) => Promise<void>;
  /** Load the whole program of a step. */
  loadProgram: (turnId: string, step: string) => Promise<string>;
}

export const TurnActionsContext = createContext<TurnActions | null>(null);

export function useTurnActions(): TurnActions {
  const actions = use(TurnActionsContext);
  if (actions === null) throw new Error("TurnActionsContext is missing around this component.");
  return actions;
}

/** Reports of running tools, by call; they are not part of the state. */
export const ToolProgressContext = createContext<ReadonlyMap<string, ToolProgress>>(new Map());
