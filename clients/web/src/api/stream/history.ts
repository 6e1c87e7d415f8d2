// Prepends older turns to those of the stream.
import { isOpen } from "../fold/fold";
import type { StateView, TurnView } from "../types";

/** The state with a page of older turns, which was loaded with its `next_cursor`. */
export function prependOlder(state: StateView, page: Pick<StateView, "turns" | "next_cursor">): StateView {
  const known = new Set(state.turns.map((turn) => turn.turn_id));
  const older = page.turns.filter((turn) => !known.has(turn.turn_id));
  return withNext({ ...state, turns: [...older, ...state.turns] }, page.next_cursor);
}

/** A snapshot with the older turns that were loaded before it, if there is no gap between them. */
export function mergeOlder(before: StateView | null, snapshot: StateView): StateView {
  const first = snapshot.turns[0];
  if (before?.conversation.conversation_id !== snapshot.conversation.conversation_id || first === undefined) return snapshot;
  const older = before.turns.filter((turn) => turn.ordinal < first.ordinal);
  const isWhole = older.at(-1)?.ordinal === first.ordinal - 1 && !older.some(isOpen);
  return isWhole ? withNext({ ...snapshot, turns: [...older, ...snapshot.turns] }, before.next_cursor) : snapshot;
}

/** The state with a fresh copy of an ended turn, for example after it was rated. Other turns change by events. */
export function replaceTurn(state: StateView, turn: TurnView): StateView {
  const place = state.turns.findIndex((present) => present.turn_id === turn.turn_id);
  if (place < 0 || isOpen(turn)) return state;
  return { ...state, turns: state.turns.with(place, turn) };
}

function withNext(state: StateView, cursor: string | undefined): StateView {
  const { next_cursor: _, ...rest } = state;
  return cursor === undefined ? rest : { ...rest, next_cursor: cursor };
}
