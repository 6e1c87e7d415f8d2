/** Opens a conversation at one of its turns, which may have to be loaded first. */
import { useEffect, useState } from "react";

import type { StateView } from "../api";
import { describeError } from "../ui/format";

interface Wish {
  /** Null for the end of the conversation. */
  turnId: string | null;
  /** Increases with every choice, even of the same turn. */
  visit: number;
  /** Null until it is known. */
  state: StateView | null;
  loadBackTo: (turnId: string, stop: AbortSignal) => Promise<boolean>;
}

export interface OpenedTurn {
  /** The turn to show, once it is loaded. */
  turnId: string | null;
  /** Changes with each turn that is opened: the list is mounted again there. */
  key: string;
  isSought: boolean;
  /** Why it cannot be shown; empty if it can. */
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
      (error: unknown) => { settle(`Couldn’t open the message: ${describeError(error)} Select it again.`); },
    );
    return () => { leave.abort(); };
  }, [turnId, wish, isReady, loadBackTo]);
  const found = outcome?.wish === wish ? outcome : null;
  // A loaded turn is shown at once.
  const isThere = found === null ? state?.turns.some((turn) => turn.turn_id === turnId) === true : found.problem === "";
  if (turnId === null || !isThere) return { turnId: null, key: "end", isSought: turnId !== null && found === null, problem: found?.problem ?? "" };
  return { turnId, key: wish, isSought: false, problem: "" };
}
