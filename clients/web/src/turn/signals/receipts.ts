/** How a signal and its receipt are described to the person. */
import type { SignalView } from "../../api";
import { lookUp } from "../../ui/wording";

/** Whether it has no words and only stops the answer. */
export function isStop(signal: SignalView): boolean {
  return signal.kind === "cancel" || (signal.kind === "steer" && signal.text.trim() === "");
}

/** What kind of thing was said. */
export function describeSignal(signal: SignalView): string {
  switch (signal.kind) {
    case "followup":
      return "You added";
    case "steer":
      return isStop(signal) ? "You stopped this answer" : "You redirected";
    case "cancel":
      return "You cancelled this answer";
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

const STATES: Readonly<Record<SignalView["state"], string>> = {
  accepted: "Queued",
  queued: "Queued for the next answer",
  // It is on the timeline. No model call has seen it if a stop came right behind it, so this does not say "read".
  applied: "Delivered",
  promoted: "Sent as the next message",
  expired: "Arrived too late",
  rejected: "Could not be delivered",
  retracted: "Withdrawn",
  unknown: "In a state unknown to this version",
};

/** One line: what it is, where its words don't tell, and how far it has come. `isStopped`: a stop was delivered together with it. */
export function describeReceipt(signal: SignalView, isStopped = false): string {
  const state = isStopped ? "Delivered, but the answer was stopped" : lookUp<string>(STATES, signal.state, STATES.unknown);
  if (isStop(signal)) return signal.state === "expired" || signal.state === "rejected" ? `${describeSignal(signal)} · ${state}` : "Stopping…";
  switch (signal.kind) {
    case "followup":
      return state;
    case "steer":
      return `Redirect · ${state}`;
    default:
      return `${describeSignal(signal)} · ${state}`;
  }
}
