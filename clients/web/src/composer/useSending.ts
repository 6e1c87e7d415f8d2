/** Sending what is written. Text and files stay where they are until the server has accepted them. */
import { useCallback, useRef, useState } from "react";

import { makeKey } from "../api";
import type { Accepted } from "../api";
import { useBackend } from "../session/context";
import { sayError } from "../ui/wording";

export interface Draft {
  text: string;
  files: readonly File[];
  kind?: "followup" | "steer";
}

export interface Sending {
  /** Whether something is on its way. */
  isSending: boolean;
  /** The share of the bytes that has left, 0 to 1. */
  progress: number;
  problem: string;
  /** Whether it was accepted; otherwise `problem` says why not. */
  send: (draft: Draft) => Promise<boolean>;
  abort: () => void;
  forgetProblem: () => void;
}

export function useSending(conversationId: string, onAccepted: (accepted: Accepted, draft: Draft) => void): Sending {
  const backend = useBackend();
  const [progress, setProgress] = useState<number | null>(null);
  const [problem, setProblem] = useState("");
  const attempt = useRef<{ draft: Draft; key: string } | null>(null);
  const abort = useRef<AbortController | null>(null);
  const send = useCallback(
    async (draft: Draft): Promise<boolean> => {
      if (abort.current !== null) return false;
      abort.current = new AbortController();
      setProgress(0);
      setProblem("");
      // The same message, sent again after an unclear failure, has the same key and is taken once.
      const key = attempt.current !== null && isSame(attempt.current.draft, draft) ? attempt.current.key : makeKey();
      attempt.current = { draft, key };
      try {
        const accepted = await backend.sendMessage(conversationId, { ...draft, key, onProgress: setProgress, abort: abort.current.signal });
        attempt.current = null;
        onAccepted(accepted, draft);
        return true;
      } catch (error) {
        setProblem(abort.current.signal.aborted ? "It was not sent." : sayError(error));
        return false;
      } finally {
        abort.current = null;
        setProgress(null);
      }
    },
    [backend, conversationId, onAccepted],
  );
  return {
    isSending: progress !== null,
    progress: progress ?? 0,
    problem,
    send,
    abort: useCallback(() => { abort.current?.abort(); }, []),
    forgetProblem: useCallback(() => { setProblem(""); }, []),
  };
}

function isSame(first: Draft, second: Draft): boolean {
  const hasSameFiles = first.files.length === second.files.length && first.files.every((file, at) => file === second.files[at]);
  return first.text === second.text && first.kind === second.kind && hasSameFiles;
}
