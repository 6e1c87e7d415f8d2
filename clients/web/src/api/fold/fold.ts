// Folds the event stream into the state that the screens show, like the server's own fold (events/fold.py). What an
// event does not change stays the same object, so that its views do not re-render.
import type { EventOf, StateView, StreamEvent, TurnView } from "../types";
import { change, put } from "./changes";
import { ORIGIN, formatCursor, isAfter, tryParseCursor } from "./cursor";
import { type TurnEvent, foldIntoTurn, isOpen, mergeReceipts } from "./foldTurn";

/**
 * The state after one event. An event that the state already includes changes nothing, so replayed events are harmless.
 */
export function foldEvent(state: StateView, event: StreamEvent): StateView {
  if (event.conversation_id !== state.conversation.conversation_id) return state;
  if (event.type === "stream.snapshot") return event.data.state;
  const cursor = tryParseCursor(event.id);
  if (cursor === null) return foldKind(state, event);
  if (!isAfter(cursor, tryParseCursor(state.cursor) ?? ORIGIN)) return state;
  return { ...foldKind(state, event), cursor: formatCursor(cursor) };
}

/** The state after these events, oldest first. */
export function foldEvents(state: StateView, events: Iterable<StreamEvent>): StateView {
  for (const event of events) state = foldEvent(state, event);
  return state;
}

function foldKind(state: StateView, event: StreamEvent): StateView {
  switch (event.type) {
    case "ready":
    case "stream.snapshot":
    case "stream.gap":
    case "server.shutdown":
    case "chat.compaction":
    case "chat.phase":
    case "chat.tool":
      return state;
    case "conv.title":
      return { ...state, conversation: { ...state.conversation, title: event.data.title } };
    case "conv.status":
      return foldStatus(state, event);
    case "chat.start":
      return putTurn(state, startTurn(findTurn(state, event.data.turn_id), event.data));
    case "chat.rewind":
      return putTurn(state, mergeReceipts(findTurn(state, event.data.turn.turn_id), event.data.turn));
    default:
      return foldTurnEvent(state, event);
  }
}

function foldTurnEvent(state: StateView, event: TurnEvent): StateView {
  const turn = findTurn(state, event.turn_id);
  return turn ? putTurn(state, foldIntoTurn(turn, event)) : state;
}

function foldStatus(state: StateView, event: EventOf<"conv.status">): StateView {
  const reported = event.data.state;
  const turn = findTurn(state, event.data.turn_id);
  const isHint = event.id === undefined;
  // A hint is read from the row and may arrive after newer events of the turn that it calls queued or running.
  if (isHint && turn && (!isOpen(turn) || (reported === "queued" && turn.status !== "queued"))) return state;
  const isOngoing = reported === "queued" || reported === "running" || reported === "waiting";
  if (!isHint && turn && isOpen(turn) && isOngoing) state = putTurn(state, { ...turn, status: reported });
  return { ...state, conversation: { ...state.conversation, state: reported } };
}

function startTurn(turn: TurnView | undefined, data: EventOf<"chat.start">["data"]): TurnView {
  const { text, attachments, created_at, ordinal, turn_id } = data;
  const message = { text, attachments, created_at, ordinal };
  if (turn === undefined) return { ...emptyTurn(turn_id), ...message };
  return isOpen(turn) ? change(turn, { ...message, status: "running" }) : change(turn, message);
}

function emptyTurn(turnId: string): TurnView {
  return {
    turn_id: turnId,
    ordinal: 0,
    status: "running",
    text: "",
    attachments: [],
    created_at: "",
    texts: [],
    steps: [],
    plans: [],
    files: [],
    citations: [],
    signals: [],
    approvals: [],
    feedback: [],
    followups: [],
    rounds: 0,
    sealed_round: 0,
    sources_used: [],
  };
}

function findTurn(state: StateView, turnId: string | undefined): TurnView | undefined {
  return state.turns.findLast((turn) => turn.turn_id === turnId);
}

function putTurn(state: StateView, turn: TurnView): StateView {
  return { ...state, turns: put(state.turns, turn, (present) => present.turn_id === turn.turn_id) };
}
