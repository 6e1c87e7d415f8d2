/** The usage of a turn, in one line. */
import type { TurnView } from "../api";
import { formatCount, formatDuration } from "../ui/format";

/** Rounds, time, tokens and their cached share, and the cost if known. */
export function describeUsage(turn: TurnView): string {
  const parts = [formatCount(turn.rounds, "round")];
  if (turn.elapsed_ms !== undefined) parts.push(formatDuration(turn.elapsed_ms));
  if (turn.usage !== undefined) {
    const { input_tokens, output_tokens, cache_read_tokens, cost_usd, cost_known } = turn.usage;
    parts.push(formatCount(input_tokens + output_tokens, "token"));
    if (cache_read_tokens > 0 && input_tokens > 0) {
      parts.push(`${Math.min(100, Math.round((100 * cache_read_tokens) / input_tokens))}% of the input cached`);
    }
    const cost = `$${cost_usd.toFixed(cost_usd < 0.1 ? 4 : 2)}`;
    if (!cost_known) parts.push(cost_usd > 0 ? `at least ${cost}` : "price unknown");
    else if (cost_usd > 0) parts.push(cost);
  }
  return parts.join(" · ");
}
