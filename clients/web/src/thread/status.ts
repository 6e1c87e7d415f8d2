/** How the connection and a summary of older turns are said to the person. */
import type { CompactionNotice, ConversationSnapshot } from "../api";
import { sayCount, sayError } from "../ui/wording";

/** Empty as long as all is well; nobody needs to be told that it works. */
export function describeConnection({ connection, problem, state }: ConversationSnapshot): string {
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
      return `The conversation can’t be shown: ${sayError(problem)}`;
  }
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
      return "";
  }
}
