/** Sends a message. Text and files stay in place until the server has accepted them. */
import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useRef, useState } from "react";

import { AGENTS_KEY } from "../agents/useAgents";
import { ProblemError, UNKNOWN_AGENT, Unreachable, makeKey } from "../api";
import type { Accepted, Scope } from "../api";
import { useSession } from "../session/context";
import { useAnnounce } from "../ui/announcer";
import { describeError } from "../ui/format";
import { findRefusals } from "./attachments";
import type { Refusals } from "./attachments";
import { loadAttempt, saveAttempt } from "./attempts";
import { useServerRecovery } from "./useServerRecovery";

const NO_REFUSALS: Refusals = new Map();

export interface Draft {
  text: string;
  files: readonly File[];
  kind?: "followup" | "steer";
  /** The agent of a new conversation; the server's default without it. */
  bundleId?: string;
}

export interface Sending {
  /** Whether a message is being sent. */
  isSending: boolean;
  /** The share of bytes already sent, 0 to 1. */
  progress: number;
  problem: string;
  /** Whether the last attempt was rejected because its agent no longer exists or may not be used. */
  isAgentGone: boolean;
  /** The files that were rejected in the last attempt. */
  refusals: Refusals;
  /** Whether it was accepted; if not, `problem` has the reason. */
  send: (draft: Draft) => Promise<boolean>;
  abort: () => void;
  forgetProblem: () => void;
}

export function useSending(conversationId: string, onAccepted: (accepted: Accepted, draft: Draft) => void): Sending {
  const { backend, scope } = useSession();
  const queries = useQueryClient();
  const announce = useAnnounce();
  const [progress, setProgress] = useState<number | null>(null);
  const [problem, setProblem] = useState("");
  const [isLost, setLost] = useState(false);
  const [isAgentGone, setAgentGone] = useState(false);
  const [refusals, setRefusals] = useState(NO_REFUSALS);
  const attempt = useRef<Tried | null>(null);
  const abort = useRef<AbortController | null>(null);
  const send = useCallback(
    async (draft: Draft): Promise<boolean> => {
      if (abort.current !== null) return false;
      abort.current = new AbortController();
      setProgress(0);
      setProblem("");
      setLost(false);
      setAgentGone(false);
      setRefusals(NO_REFUSALS);
      // The same message, sent again after an unclear failure, has the same key and is accepted only once.
      const known = attempt.current ?? loadBefore(scope, conversationId);
      const key = known !== null && isSame(known.draft, draft) ? known.key : makeKey();
      attempt.current = { draft, key };
      keep(scope, conversationId, attempt.current);
      try {
        const accepted = await backend.sendMessage(conversationId, { ...draft, key, onProgress: setProgress, abort: abort.current.signal });
        attempt.current = null;
        keep(scope, conversationId, null);
        announce(accepted.receipt.file_notices?.join(" ") ?? "", "done");
        onAccepted(accepted, draft);
        return true;
      } catch (error) {
        setRefusals(findRefusals(error, draft.files));
        setProblem(abort.current.signal.aborted ? "Not sent." : describeFailedLoad(error));
        setLost(!abort.current.signal.aborted && error instanceof Unreachable);
        if (error instanceof ProblemError && error.type === UNKNOWN_AGENT) {
          setAgentGone(true);
          void queries.invalidateQueries({ queryKey: AGENTS_KEY });
        }
        return false;
      } finally {
        abort.current = null;
        setProgress(null);
      }
    },
    [backend, queries, scope, conversationId, onAccepted, announce],
  );
  const forgetProblem = useCallback(() => {
    setProblem("");
    setLost(false);
  }, []);
  // The error "not responding" ends as soon as the server responds.
  useServerRecovery(isLost, forgetProblem);
  return {
    isSending: progress !== null,
    progress: progress ?? 0,
    problem,
    isAgentGone,
    refusals,
    send,
    abort: useCallback(() => { abort.current?.abort(); }, []),
    forgetProblem,
  };
}

function describeFailedLoad(error: unknown): string {
  return error instanceof Unreachable && !navigator.onLine ? "You are offline. Your text has not been lost." : describeError(error);
}

interface Tried {
  draft: Draft;
  key: string;
}

function loadBefore(scope: Scope, conversationId: string): Tried | null {
  const found = loadAttempt(sessionStorage, scope, conversationId);
  if (found === null) return null;
  const { key, ...said } = found;
  return { draft: { ...said, files: [] }, key };
}

/** Files do not survive a reload, so a message with files is not the same afterwards. */
function keep(scope: Scope, conversationId: string, tried: Tried | null): void {
  const isCached = tried !== null && tried.draft.files.length === 0;
  const { text, kind, bundleId } = tried?.draft ?? { text: "" };
  saveAttempt(sessionStorage, scope, conversationId, isCached ? { text, key: tried.key, ...(kind === undefined ? {} : { kind }), ...(bundleId === undefined ? {} : { bundleId }) } : null);
}

function isSame(first: Draft, second: Draft): boolean {
  const hasSameFiles = first.files.length === second.files.length && first.files.every((file, at) => file === second.files[at]);
  return first.text === second.text && first.kind === second.kind && first.bundleId === second.bundleId && hasSameFiles;
}
