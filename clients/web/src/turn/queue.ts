/** The queue position of a message that waits for a worker. */
import { createContext } from "react";

import type { QueuePlace } from "../api";

/** The position of the conversation's queued turn, as last reported; it is not part of the state. */
export const QueuePlaceContext = createContext<QueuePlace | null>(null);

export function describePlace(place: QueuePlace | null): string {
  if (place === null) return "Waiting to start…";
  if (place.hasMore) return `Waiting: more than ${place.ahead} messages are ahead.`;
  if (place.ahead === 0) return "Waiting: next in line.";
  return place.ahead === 1 ? "Waiting: one message is ahead." : `Waiting: ${place.ahead} messages are ahead.`;
}
