/** Stopping the turn that goes on: first with what there is, and a second time at once. Escape does it too. */
import { useCallback, useEffect, useState } from "react";

import { ProblemError } from "../api";
import { useBackend } from "../session/context";
import { sayError } from "../ui/wording";

interface Stopping {
  isStopping: boolean;
  problem: string;
  stop: () => void;
}

/** `turnId` is the turn that goes on or was accepted, undefined where there is none. */
export function useStopping(conversationId: string, turnId: string | undefined): Stopping {
  const backend = useBackend();
  const [asked, setAsked] = useState<string | null>(null);
  const [problem, setProblem] = useState("");
  const isStopping = turnId !== undefined && asked === turnId;
  const stop = useCallback(() => {
    if (turnId === undefined) return;
    setAsked(turnId);
    setProblem("");
    const cancel = (): Promise<unknown> => backend.sendSignal(conversationId, { kind: "cancel" });
    const sent = isStopping ? cancel() : backend.sendSignal(conversationId, { kind: "steer", text: "" }).catch((error: unknown) => {
      // A turn that has no room for more signals can always be cancelled.
      if (error instanceof ProblemError && error.status === 429) return cancel();
      throw error;
    });
    sent.catch((error: unknown) => {
      setAsked(null);
      setProblem(sayError(error));
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

/** In a field other than that of the message, Escape is about what is written there. */
function isElsewhere(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input, select, textarea:not([data-composer])") !== null;
}

/** Escape closes what lies over the page first. */
function isSomethingOpen(): boolean {
  return document.querySelector("[role=dialog]:not([hidden]), [role=alertdialog]:not([hidden]), [role=menu]:not([hidden])") !== null;
}
