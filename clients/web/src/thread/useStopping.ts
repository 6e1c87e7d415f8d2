/** Stopping the running turn: the first stop keeps the answer so far, the second one cancels. Escape does the same. */
import { useCallback, useEffect, useState } from "react";

import { ProblemError } from "../api";
import { useBackend } from "../session/context";
import { describeError } from "../ui/format";

interface Stopping {
  isStopping: boolean;
  problem: string;
  stop: () => void;
}

/** `turnId` is the running or accepted turn, undefined if there is none. */
export function useStopping(conversationId: string, turnId: string | undefined): Stopping {
  const backend = useBackend();
  const [stoppedTurn, setStoppedTurn] = useState<string | null>(null);
  const [problem, setProblem] = useState("");
  const isStopping = turnId !== undefined && stoppedTurn === turnId;
  const stop = useCallback(() => {
    if (turnId === undefined) return;
    setStoppedTurn(turnId);
    setProblem("");
    const cancel = (): Promise<unknown> => backend.sendSignal(conversationId, { kind: "cancel" });
    const sent = isStopping ? cancel() : backend.sendSignal(conversationId, { kind: "steer", text: "" }).catch((error: unknown) => {
      // A turn that accepts no more signals can still be cancelled.
      if (error instanceof ProblemError && error.status === 429) return cancel();
      throw error;
    });
    sent.catch((error: unknown) => {
      setStoppedTurn(null);
      setProblem(describeError(error));
    });
  }, [backend, conversationId, turnId, isStopping]);
  useEffect(() => {
    if (turnId === undefined || isStopping) return;
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "Escape" || event.defaultPrevented || event.isComposing) return;
      if (!isElsewhere(event.target) && !isSomethingOpen()) stop();
    };
    window.addEventListener("keydown", onKey);
    return () => { window.removeEventListener("keydown", onKey); };
  }, [turnId, isStopping, stop]);
  return { isStopping, problem, stop };
}

/** In any other text field Escape belongs to that field. */
function isElsewhere(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input, select, textarea:not([data-composer])") !== null;
}

/** Escape first closes whatever covers the page. */
function isSomethingOpen(): boolean {
  return document.querySelector("[role=dialog]:not([hidden]), [role=alertdialog]:not([hidden]), [role=menu]:not([hidden])") !== null;
}
