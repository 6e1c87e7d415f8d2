/** Messages that the server has accepted but that are not in the stream yet. */
import type { TurnView } from "../api";

export interface Pending {
  readonly key: string;
  readonly turnId: string;
  readonly text: string;
  readonly filenames: readonly string[];
}

/** The messages that no turn shows yet. */
export function stillPending(pending: readonly Pending[], turns: readonly TurnView[]): readonly Pending[] {
  if (pending.length === 0) return pending;
  const known = new Set(turns.map((turn) => turn.turn_id));
  return pending.filter((each) => !known.has(each.turnId));
}
