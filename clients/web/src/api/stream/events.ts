// Parses the frames of a stream into typed events.
import type { EventSourceMessage } from "eventsource-parser";

import { EVENT_TYPES } from "../generated/wire";
import { InvalidResponse } from "../http/errors";
import type { StreamEvent } from "../types";

const KNOWN: ReadonlySet<string> = new Set(EVENT_TYPES);

/** Null for an event type of a newer server. Raises InvalidResponse for data that is not an event. */
export function tryParseEvent(frame: EventSourceMessage): StreamEvent | null {
  const name = frame.event ?? "message";
  let event: unknown;
  try {
    event = JSON.parse(frame.data);
  } catch (error) {
    throw new InvalidResponse(`the event ${name} is not valid JSON`, error);
  }
  if (!isEnvelope(event)) throw new InvalidResponse(`${name} is not a valid event`);
  return KNOWN.has(event.type) ? (event as StreamEvent) : null;
}

/** Only the envelope is checked; the payload has the types generated from the server's models. */
function isEnvelope(event: unknown): event is { readonly type: string } {
  if (typeof event !== "object" || event === null) return false;
  const { type, conversation_id, data } = event as Partial<Record<string, unknown>>;
  return typeof type === "string" && typeof conversation_id === "string" && typeof data === "object" && data !== null;
}
