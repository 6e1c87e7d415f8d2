/** Texts for a signal and its receipt. */
import type { SignalView } from "../../api";
import { lookUp } from "../../ui/format";

/** Whether it has no text and only stops the answer. */
export function isStop(signal: SignalView): boolean {
  return signal.kind === "cancel" || (signal.kind === "steer" && signal.text.trim() === "");
}

/** The kind of message. */
export function describeSignal(signal: SignalView): string {
  switch (signal.kind) {
    case "followup":
      return "You added a message";
    case "steer":
      return isStop(signal) ? "You stopped this answer" : "You redirected this answer";
    case "cancel":
      return "You cancelled this answer";
    case "event":
      return `Event ${signal.event?.kind ?? ""}`.trim();
    case "approve":
      return "You approved a tool call";
    case "deny":
      return "You denied a tool call";
    default:
      // A kind of a newer server.
      return "Unknown kind of message";
  }
}

const STATES: Readonly<Record<SignalView["state"], string>> = {
  accepted: "Sent",
  queued: "Queued for the next answer",
  // It is on the timeline. If a stop followed directly, no model call has seen it, so this does not say "read".
  applied: "Delivered",
  promoted: "Sent as the next message",
  expired: "Arrived too late",
  rejected: "Could not be delivered",
  retracted: "Retracted",
  unknown: "Unknown state (from a newer version of the server)",
};

/**
 * One line: what it is, unless its text shows that, and its state. `isStopped`: a stop was delivered together with it.
 */
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
