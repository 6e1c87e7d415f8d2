// Folding the stream of events into the state that a person sees, as the server's own fold does (event_fold.py).
// What an event does not touch stays the same object, so that views of it need not be made again.
import type { EventOf, StateView, StreamEvent, TurnView } from "../types";
import { change, put } from "./changes";
import { ORIGIN, formatCursor, isAfter, tryParseCursor } from "./cursor";
import { type TurnEvent, foldIntoTurn, isOpen, keepReceipts } from "./turnFold";

/** The state after one event. An event that the state includes changes nothing, so a stream may overlap. */
export function foldEvent(state: StateView, event: StreamEvent): StateView {
  if (event.conversation_id !== state.conversation.conversation_id) return state;
  if (event.type === "stream.snapshot") return event.data.state;
  const cursor = tryParseCursor(event.id);
  if (cursor === null) return foldKind(state, event);
  if (!isAfter(cursor, tryParseCursor(state.cursor) ?? ORIGIN)) return state;
  return { ...foldKind(state, event), cursor: formatCursor(cursor) };
}

/** The state after these events, the oldest first. */
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
      return putTurn(state, keepReceipts(findTurn(state, event.data.turn.turn_id), event.data.turn));
    default:
      return foldTurnEvent(state, event);
  }
}

function foldTurnEvent(state: StateView, event: TurnEvent): StateView {
  const turn = findTurn(state, event.turn_id);
  return turn ? putTurn(state, foldIntoTurn(turn, event)) : state;
}

function foldStatus(state: StateView, event: EventOf<"conv.status">): StateView {
  const told = event.data.state;
  const turn = findTurn(state, event.data.turn_id);
  const isHint = event.id === undefined;
  // A hint is read from the row and may arrive after the events of the turn that it calls queued or running.
  if (isHint && turn && (!isOpen(turn) || (told === "queued" && turn.status !== "queued"))) return state;
  const isGoingOn = told === "queued" || told === "running" || told === "waiting";
  if (!isHint && turn && isOpen(turn) && isGoingOn) state = putTurn(state, { ...turn, status: told });
  return { ...state, conversation: { ...state.conversation, state: told } };
}

function startTurn(turn: TurnView | undefined, data: EventOf<"chat.start">["data"]): TurnView {
  const { text, attachments, created_at, ordinal, turn_id } = data;
  const told = { text, attachments, created_at, ordinal };
  if (turn === undefined) return { ...emptyTurn(turn_id), ...told };
  return isOpen(turn) ? change(turn, { ...told, status: "running" }) : change(turn, told);
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
