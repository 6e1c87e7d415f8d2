// Frames of a stream as typed events.
import type { EventSourceMessage } from "eventsource-parser";

import { BadAnswer } from "../http/errors";
import type { StreamEvent, StreamEventType } from "../types";

/** All that this client knows; the types make sure that none is left out. */
const KNOWN: Readonly<Record<StreamEventType, true>> = {
  ready: true,
  "conv.status": true,
  "conv.title": true,
  "chat.start": true,
  "chat.step": true,
  "chat.delta": true,
  "chat.plan": true,
  "chat.files": true,
  "chat.citations": true,
  "chat.followups": true,
  "chat.compaction": true,
  "chat.phase": true,
  "chat.tool": true,
  "chat.signal": true,
  "chat.approval": true,
  "chat.rewind": true,
  "chat.complete": true,
  "chat.error": true,
  "stream.snapshot": true,
  "stream.gap": true,
  "server.shutdown": true,
};

/** Null for what a newer server tells and this client does not know. Raises BadAnswer for what is no event. */
export function tryParseEvent(frame: EventSourceMessage): StreamEvent | null {
  const name = frame.event ?? "message";
  let event: unknown;
  try {
    event = JSON.parse(frame.data);
  } catch (error) {
    throw new BadAnswer(`the event ${name} is no JSON`, error);
  }
  if (!isEnvelope(event)) throw new BadAnswer(`${name} is no event`);
  return Object.hasOwn(KNOWN, event.type) ? (event as StreamEvent) : null;
}

/** The envelope is looked at; what is in it is as the server's models say, from which our types are made. */
function isEnvelope(event: unknown): event is { readonly type: string } {
  if (typeof event !== "object" || event === null) return false;
  const { type, conversation_id, data } = event as Partial<Record<string, unknown>>;
  return typeof type === "string" && typeof conversation_id === "string" && typeof data === "object" && data !== null;
}
