// Live details that are shown while they last and are not part of the state: the queue position, a running compaction,
// the model that is being waited for, the progress of a tool.
import type { Compaction, EventOf, Phase, StreamEvent, ToolReport } from "../types";

export const MAX_MESSAGES = 20;

/** The latest compaction that the turn `turn_id` waited for. */
export interface CompactionNotice extends Compaction {
  readonly turn_id?: string;
}

/** What the turn `turn_id` is waiting for. */
export interface PhaseNotice extends Phase {
  readonly turn_id?: string;
}

/**
 * What a tool call has reported so far. `progress` is set while it runs; only the last `MAX_MESSAGES` messages are
 * kept.
 */
export interface ToolProgress {
  readonly call_id: string;
  readonly tool_id: string;
  readonly turn_id?: string;
  readonly progress?: string;
  readonly messages: readonly string[];
  readonly data?: ToolReport["data"];
}

/** How many turns are ahead of the queued turn, as last reported; `hasMore` if there are more than that. */
export interface QueuePlace {
  readonly turnId: string;
  readonly ahead: number;
  readonly hasMore: boolean;
}

export interface Transient {
  readonly place?: QueuePlace;
  readonly compaction?: CompactionNotice;
  readonly phase?: PhaseNotice;
  readonly toolProgress: ReadonlyMap<string, ToolProgress>;
}

export const NOTHING: Transient = { toolProgress: new Map() };

/** The transient state after one event. It ends with its turn, and at a snapshot or a rewind. */
export function foldTransient(seen: Transient, event: StreamEvent): Transient {
  if (event.type === "chat.phase") return foldPhase(seen, event);
  // A phase lasts until its turn continues.
  const goesOn = event.turn_id !== undefined && event.turn_id === seen.phase?.turn_id && event.type !== "chat.signal";
  return foldOther(goesOn ? forgetPhase(seen) : seen, event);
}

function foldOther(seen: Transient, event: Exclude<StreamEvent, EventOf<"chat.phase">>): Transient {
  switch (event.type) {
    case "stream.snapshot":
      return NOTHING;
    case "chat.start":
    case "chat.rewind":
    case "chat.complete":
    case "chat.error":
      return forgetTurn(forgetPlace(seen), event.turn_id);
    case "conv.status":
      return foldPlace(seen, event);
    case "chat.compaction": {
      const turn = event.turn_id === undefined ? {} : { turn_id: event.turn_id };
      return { ...seen, compaction: { ...event.data, ...turn } };
    }
    case "chat.tool":
      return { ...seen, toolProgress: new Map(seen.toolProgress).set(event.data.call_id, report(seen, event)) };
    case "chat.step":
      return event.data.status === "started" ? seen : endProgress(seen, event.data.call_id);
    default:
      return seen;
  }
}

function foldPlace(seen: Transient, { data, turn_id }: EventOf<"conv.status">): Transient {
  const turnId = data.turn_id ?? turn_id;
  if (data.state !== "queued") return forgetPlace(seen);
  if (data.position === undefined || turnId === undefined) return seen;
  return { ...seen, place: { turnId, ahead: data.position, hasMore: data.position_more ?? false } };
}

function foldPhase(seen: Transient, { data, turn_id }: EventOf<"chat.phase">): Transient {
  if (data.phase === "model_replying") return forgetPhase(seen);
  return { ...seen, phase: { ...data, ...(turn_id === undefined ? {} : { turn_id }) } };
}

function forgetPhase(seen: Transient): Transient {
  if (seen.phase === undefined) return seen;
  const { phase: _, ...rest } = seen;
  return rest;
}

function forgetPlace(seen: Transient): Transient {
  if (seen.place === undefined) return seen;
  const { place: _, ...rest } = seen;
  return rest;
}

function report(seen: Transient, event: EventOf<"chat.tool">): ToolProgress {
  const { call_id, tool_id, kind, text, data } = event.data;
  const turn = event.turn_id === undefined ? {} : { turn_id: event.turn_id };
  const before = seen.toolProgress.get(call_id) ?? { call_id, tool_id, messages: [], ...turn };
  if (kind === "progress") return { ...before, progress: text };
  if (kind === "message") return { ...before, messages: [...before.messages, text].slice(-MAX_MESSAGES) };
  return data === undefined ? before : { ...before, data };
}

function endProgress(seen: Transient, callId: string | undefined): Transient {
  const present = callId === undefined ? undefined : seen.toolProgress.get(callId);
  if (present?.progress === undefined) return seen;
  const { progress: _, ...rest } = present;
  return { ...seen, toolProgress: new Map(seen.toolProgress).set(present.call_id, rest) };
}

function forgetTurn(seen: Transient, turnId: string | undefined): Transient {
  const reports = [...seen.toolProgress].filter(([, each]) => each.turn_id !== turnId);
  const isIts = seen.compaction !== undefined && seen.compaction.turn_id === turnId;
  if (!isIts && reports.length === seen.toolProgress.size) return seen;
  const { compaction, ...rest } = seen;
  const kept = isIts || compaction === undefined ? {} : { compaction };
  return { ...rest, ...kept, toolProgress: new Map(reports) };
}
