/** How the connection and a summary of older turns are said to the person. */
import { ProblemError } from "../api";
import type { CompactionNotice, ConversationSnapshot } from "../api";
import { sayCount, sayError } from "../ui/wording";

const NOT_THERE = "There is no conversation at this address. It was deleted, or it is not yours.";
const DELETED = "This conversation was deleted. What you see here was read before.";

/** Empty as long as all is well; nobody needs to be told that it works. */
export function describeConnection(live: ConversationSnapshot): string {
  const { connection, problem, state } = live;
  switch (connection) {
    case "connecting":
    case "live":
      return "";
    case "waiting":
      return "Other windows of this browser follow as many conversations as it can. This one goes on when one of them is closed or hidden.";
    case "reconnecting":
      return state === null ? "Connecting again…" : "The connection broke. Connecting again; nothing is lost.";
    case "offline":
      return "You are offline. What happens meanwhile is shown when you are back.";
    case "refused":
      if (isMissing(live)) return wasNeverThere(live) ? NOT_THERE : DELETED;
      return `The conversation can’t be shown: ${sayError(problem)}`;
  }
}

/** Whether nothing of the conversation was read before the server said that there is none. */
export function wasNeverThere(live: ConversationSnapshot): boolean {
  return isMissing(live) && live.state === null;
}

/** Whether the server said that there is no such conversation, or none any more. */
export function isMissing({ connection, problem }: ConversationSnapshot): boolean {
  return connection === "refused" && problem instanceof ProblemError && problem.status === 404;
}

export function sayCompaction(notice: CompactionNotice): string {
  switch (notice.status) {
    case "started":
      return `Summarizing older parts (${sayCount(notice.before_tokens, "token")})…`;
    case "completed": {
      const after = notice.after_tokens === undefined ? "" : ` instead of ${notice.before_tokens.toLocaleString("en")}`;
      return `Older parts were summarized: ${sayCount(notice.after_tokens ?? notice.before_tokens, "token")}${after}.`;
    }
    case "skipped":
    default:
      return "";
  }
}
