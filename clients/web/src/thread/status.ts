/** Texts for the state of the connection and for compaction. */
import { ProblemError } from "../api";
import type { CompactionNotice, ConversationSnapshot, PhaseNotice } from "../api";
import { formatDuration, describeError } from "../ui/format";

const NOT_THERE = "Conversation not found. It was deleted, or you don’t have access to it.";
const DELETED = "This conversation was deleted. This page shows the last version it loaded.";

/** Empty while the connection works. */
export function describeConnection(live: ConversationSnapshot): string {
  const { connection, problem, state } = live;
  switch (connection) {
    case "connecting":
    case "live":
      return "";
    case "waiting":
      return "Everturn is open in too many tabs. This tab reconnects when you close or hide another one.";
    case "reconnecting":
      return state === null ? "Reconnecting…" : "Connection lost. Reconnecting… Your work is safe.";
    case "offline":
      return "You are offline. This page will catch up when you are back online.";
    case "refused":
      if (isMissing(live)) return wasNotFound(live) ? NOT_THERE : DELETED;
      return `Couldn’t load the conversation: ${describeError(problem)}`;
  }
}

/** Whether the server reported a missing conversation before anything was loaded. */
export function wasNotFound(live: ConversationSnapshot): boolean {
  return isMissing(live) && live.state === null;
}

/** Whether the server reported that the conversation does not exist or no longer exists. */
export function isMissing({ connection, problem }: ConversationSnapshot): boolean {
  return connection === "refused" && problem instanceof ProblemError && problem.status === 404;
}

/** What the answer waits for; empty while it continues. */
export function describePhase(phase: PhaseNotice): string {
  switch (phase.phase) {
    case "selecting_tools":
      return "Choosing tools…";
    case "model_waiting":
      return phase.waited_ms === undefined ? "Waiting for the model…" : `Waiting for the model… (${Math.round(phase.waited_ms / 1000)} s)`;
    case "model_retrying": {
      const attempt = phase.attempt === undefined || phase.max_attempts === undefined ? "" : `, attempt ${phase.attempt} of ${phase.max_attempts}`;
      const soon = phase.retry_in_ms === undefined ? "" : ` in ${formatDuration(phase.retry_in_ms)}`;
      return `The model didn’t answer. Trying again${soon}${attempt}…`;
    }
    case "model_fallback":
      return "The model didn’t answer. Trying another model…";
    // The model is replying, or a newer server reports another phase.
    default:
      return "";
  }
}

export function describeCompaction(notice: CompactionNotice): string {
  switch (notice.status) {
    case "started":
      return "Summarizing earlier messages…";
    case "completed":
      return "Earlier messages were summarized.";
    case "skipped":
    default:
      return "";
  }
}
