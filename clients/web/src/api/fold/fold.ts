// Folds the event stream into the state that the screens show, like the server's own fold (events/fold.py). What an
// event does not change stays the same object, so that its views do not re-render.
import { TURN_DEFAULTS } from "../generated/wire";
import type {
  ApprovalView,
  CitationView,
  EventOf,
  FileView,
  SignalView,
  StateView,
  StepRoundView,
  StepView,
  StreamEvent,
  TextView,
  TurnView,
} from "../types";
import { change, compareKeys, put } from "./changes";
import { ORIGIN, formatCursor, isAfter, tryParseCursor } from "./cursor";

type TurnEvent = EventOf<
  | "chat.step"
  | "chat.delta"
  | "chat.plan"
  | "chat.files"
  | "chat.citations"
  | "chat.followups"
  | "chat.signal"
  | "chat.approval"
  | "chat.phase"
  | "chat.complete"
  | "chat.error"
>;

const CHANNEL_RANK: Readonly<Record<string, number>> = { thinking: 0, notes: 1, timeline_text: 2, canvas: 2, answer: 4 };
const OTHER_RANK = 3;

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
    case "chat.tool":
      return state;
    case "chat.phase":
      return event.data.step_id === undefined ? state : foldTurnEvent(state, event);
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
  if (turn === undefined) return { ...TURN_DEFAULTS, turn_id, status: "running", ...message };
  return isOpen(turn) ? change(turn, { ...message, status: "running" }) : change(turn, message);
}

function findTurn(state: StateView, turnId: string | undefined): TurnView | undefined {
  return state.turns.findLast((turn) => turn.turn_id === turnId);
}

function putTurn(state: StateView, turn: TurnView): StateView {
  return { ...state, turns: put(state.turns, turn, (present) => present.turn_id === turn.turn_id) };
}

/** Whether the turn has not ended. */
export function isOpen(turn: TurnView): boolean {
  return turn.status === "queued" || turn.status === "running" || turn.status === "waiting";
}

function foldIntoTurn(turn: TurnView, event: TurnEvent): TurnView {
  const round = event.round ?? 0;
  if (isOpen(turn) && round > turn.rounds) turn = { ...turn, rounds: round };
  switch (event.type) {
    case "chat.delta":
      return appendText(turn, event.data, round);
    case "chat.step":
      return { ...turn, steps: putStep(turn.steps, event.data, round) };
    case "chat.plan": {
      const { plan } = event.data;
      return { ...turn, plans: put(turn.plans, plan, (present) => present.plan_id === plan.plan_id) };
    }
    case "chat.files":
      return { ...turn, files: putFiles(turn.files, event.data.files) };
    case "chat.citations":
      return { ...turn, citations: putCitations(turn.citations, event.data.sources) };
    case "chat.followups":
      return { ...turn, followups: event.data.items };
    case "chat.signal":
      return { ...turn, signals: putSignal(turn.signals, event.data) };
    case "chat.approval":
      return { ...turn, approvals: putApproval(turn.approvals, { ...event.data, round }) };
    case "chat.phase":
      return { ...turn, step_rounds: putStepRound(turn.step_rounds, event.data, round) };
    case "chat.complete":
    case "chat.error":
      return endTurn(turn, event);
    default:
      event satisfies never;
      // An event type of a newer server, although the types exclude it.
      return turn;
  }
}

function endTurn(turn: TurnView, event: EventOf<"chat.complete" | "chat.error">): TurnView {
  if (!isOpen(turn)) return turn;
  const { rounds, usage, elapsed_ms } = event.data;
  const ended = { rounds, sealed_round: rounds, usage, elapsed_ms, approvals: withdrawPending(turn.approvals) };
  if (event.type === "chat.error") return { ...turn, ...ended, status: "failed", error: event.data.problem };
  const { outcome, cut_reason, answer, followups, sources_used } = event.data;
  const status = outcome === "cancelled" ? "cancelled" : "completed";
  return change(turn, { ...ended, status, outcome, cut_reason, answer, followups, sources_used });
}

function withdrawPending(approvals: readonly ApprovalView[]): readonly ApprovalView[] {
  if (!approvals.some((approval) => approval.state === "pending")) return approvals;
  return approvals.map((each) => (each.state === "pending" ? { ...each, state: "withdrawn" } : each));
}

function appendText(turn: TurnView, delta: EventOf<"chat.delta">["data"], round: number): TurnView {
  // The texts of committed rounds are complete. A later delta was already included in the commit.
  if (round <= turn.sealed_round || delta.text === "") return turn;
  const { channel, instance, marker, format, text, artifact } = delta;
  const place = turn.texts.findLastIndex(
    (each) => each.round === round && each.channel === channel && each.instance === instance,
  );
  const present = turn.texts[place];
  if (present) return { ...turn, texts: turn.texts.with(place, { ...present, text: present.text + text }) };
  const begun = { round, channel, instance, marker, format, text, ...(artifact === undefined ? {} : { artifact }) };
  return { ...turn, texts: [...turn.texts, begun].sort(compareTexts) };
}

function compareTexts(one: TextView, other: TextView): number {
  return compareKeys(textKey(one), textKey(other));
}

/** Sort key: round, then channel (thinking, notes, written, answer), then instance. */
function textKey(text: TextView): readonly (number | string)[] {
  return [text.round, CHANNEL_RANK[text.channel] ?? OTHER_RANK, text.instance, text.channel];
}

function putStep(steps: readonly StepView[], incoming: EventOf<"chat.step">["data"], round: number): readonly StepView[] {
  const present = steps.find((step) => step.step === incoming.step);
  if (present === undefined) return [...steps, { ...incoming, round }];
  if (incoming.status === "started" && present.status !== "started") return steps;
  return put(steps, { ...present, ...incoming }, (step) => step.step === incoming.step);
}

/** A round of a plan's step begins with `model_called` and is committed with `model_thought`. */
function putStepRound(
  rounds: readonly StepRoundView[],
  { phase, step_id }: EventOf<"chat.phase">["data"],
  round: number,
): readonly StepRoundView[] {
  if (step_id === undefined || (phase !== "model_called" && phase !== "model_thought")) return rounds;
  const seen = { round, step_id, sealed: phase === "model_thought" };
  return put(rounds, seen, (present) => present.round === round).toSorted((one, other) => one.round - other.round);
}

function putFiles(files: readonly FileView[], incoming: readonly FileView[]): readonly FileView[] {
  for (const file of incoming) {
    if (file.visibility !== "external") continue;
    files = put(files, file, (present) => present.artifact_id === file.artifact_id);
  }
  return files;
}

function putCitations(present: readonly CitationView[], incoming: readonly CitationView[]): readonly CitationView[] {
  const bySid = new Map([...present, ...incoming].map((citation) => [citation.sid, citation]));
  return [...bySid.values()].sort((one, other) => one.sid - other.sid);
}

/**
 * A rewind contains only the signals that the worker has read. Newer ones, and newer states, came by hints and are
 * kept.
 */
function mergeReceipts(present: TurnView | undefined, rewound: TurnView): TurnView {
  if (present === undefined) return rewound;
  const incoming = new Map(rewound.signals.map((signal) => [signal.signal_id, signal]));
  const newer = present.signals.filter((signal) => isUnsettled(incoming.get(signal.signal_id)?.state ?? "accepted"));
  const kept = new Map([...rewound.signals, ...newer].map((signal) => [signal.signal_id, signal]));
  return { ...rewound, signals: [...kept.values()].sort(compareSignals) };
}

function putSignal(signals: readonly SignalView[], incoming: SignalView): readonly SignalView[] {
  const isSame = (signal: SignalView) => signal.signal_id === incoming.signal_id;
  const present = signals.find(isSame);
  // Only `accepted` can change, and a hint with that state may arrive after the event that settled the signal.
  if (present && !isUnsettled(present.state) && isUnsettled(incoming.state)) return signals;
  return [...put(signals, incoming, isSame)].sort(compareSignals);
}

function isUnsettled(state: SignalView["state"]): boolean {
  return state === "accepted" || state === "queued";
}

function compareSignals(one: SignalView, other: SignalView): number {
  return compareKeys([one.signal_id], [other.signal_id]);
}

function putApproval(approvals: readonly ApprovalView[], incoming: ApprovalView): readonly ApprovalView[] {
  const isSame = (each: ApprovalView) => each.approval_id === incoming.approval_id;
  const present = approvals.find(isSame);
  return present && present.state !== "pending" ? approvals : put(approvals, incoming, isSame);
}
