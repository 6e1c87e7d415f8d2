/** How a signal and its receipt are said to the person. */
import type { SignalView } from "../../api";

/** What kind of thing was said. */
export function describeSignal(signal: SignalView): string {
  switch (signal.kind) {
    case "followup":
      return "You added";
    case "steer":
      return signal.text.trim() === "" ? "You stopped the turn" : "You redirected";
    case "cancel":
      return "You cancelled the turn";
    case "event":
      return `Event ${signal.event?.kind ?? ""}`.trim();
    case "approve":
      return "You approved";
    case "deny":
      return "You denied";
    default:
      // Of a newer server.
      return "Message of an unknown kind";
  }
}

/** One line: what it is and how far it has come. */
export function sayReceipt(signal: SignalView): string {
  const what = describeSignal(signal);
  switch (signal.state) {
    case "accepted":
      return `${what} · waits to be taken up`;
    case "queued":
      return `${what} · waits for the next turn`;
    case "applied":
      return signal.round === undefined ? `${what} · taken up` : `${what} · taken up in round ${signal.round}`;
    case "promoted":
      return `${what} · became the next turn`;
    case "expired":
      return `${what} · came too late`;
    case "rejected":
      return `${what} · could not be taken up`;
    case "retracted":
      return `${what} · taken back`;
    default:
      return what;
  }
}
