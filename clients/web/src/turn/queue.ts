/** Where a message stands that waits for a worker. */
import { createContext } from "react";

import type { QueuePlace } from "../api";

/** The place of the conversation's waiting turn, as the server reported it last; it is no part of the state. */
export const QueuePlaceContext = createContext<QueuePlace | null>(null);

export function describePlace(place: QueuePlace | null): string {
  if (place === null) return "Waiting to start…";
  if (place.hasMore) return `Waiting: more than ${place.ahead} messages are ahead.`;
  if (place.ahead === 0) return "Waiting: next in line.";
  return place.ahead === 1 ? "Waiting: one message is ahead." : `Waiting: ${place.ahead} messages are ahead.`;
}
