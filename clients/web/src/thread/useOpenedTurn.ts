/** Opens a conversation at one of its turns, which may have to be read first. */
import { useEffect, useState } from "react";

import type { StateView } from "../api";
import { sayError } from "../ui/wording";

interface Wish {
  /** Null for the end of the conversation. */
  turnId: string | null;
  /** Grows with each choice of the person, who may choose the same turn again. */
  visit: number;
  /** Null until it is known. */
  state: StateView | null;
  loadBackTo: (turnId: string, stop: AbortSignal) => Promise<boolean>;
}

export interface OpenedTurn {
  /** The turn to show, once it is there. */
  turnId: string | null;
  /** Another one for each turn that is shown: the list begins anew there. */
  key: string;
  isSought: boolean;
  /** Why it can't be shown; empty when it can. */
  problem: string;
}

interface Outcome {
  wish: string;
  problem: string;
}

export function useOpenedTurn({ turnId, visit, state, loadBackTo }: Wish): OpenedTurn {
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const isReady = state !== null;
  const wish = `${turnId ?? "end"} ${visit}`;
  useEffect(() => {
    if (turnId === null || !isReady) return;
    const leave = new AbortController();
    const settle = (problem: string): void => { if (!leave.signal.aborted) setOutcome({ wish, problem }); };
    loadBackTo(turnId, leave.signal).then(
      (isThere) => { settle(isThere ? "" : "This message is no longer in the conversation."); },
      (error: unknown) => { settle(`Couldn’t open the message: ${sayError(error)} Select it again.`); },
    );
    return () => { leave.abort(); };
  }, [turnId, wish, isReady, loadBackTo]);
  const found = outcome?.wish === wish ? outcome : null;
  // What is there already is shown at once.
  const isThere = found === null ? state?.turns.some((turn) => turn.turn_id === turnId) === true : found.problem === "";
  if (turnId === null || !isThere) return { turnId: null, key: "end", isSought: turnId !== null && found === null, problem: found?.problem ?? "" };
  return { turnId, key: wish, isSought: false, problem: "" };
}
