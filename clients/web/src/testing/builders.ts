/** Complete test values; a test overrides only the fields that it is about. */
import { TURN_DEFAULTS } from "../api/generated/wire";
import type { Agent, ConversationView, FileView, SignalView, StepView, TextView, TurnView } from "../api";

export function buildConversation(changes: Partial<ConversationView> = {}): ConversationView {
  return { conversation_id: "conv_1", title: "", state: "idle", archived: false, created_at: "", last_activity_at: "", ...changes };
}

export function buildTurn(changes: Partial<TurnView> = {}): TurnView {
  return {
    ...TURN_DEFAULTS,
    turn_id: "turn_1",
    ordinal: 1,
    status: "completed",
    text: "What is the total?",
    created_at: "2026-03-01T10:00:00Z",
    rounds: 1,
    sealed_round: 1,
    ...changes,
  };
}

export function buildText(changes: Partial<TextView> = {}): TextView {
  return { round: 1, channel: "answer", instance: 0, marker: "answer", format: "markdown", text: "The total is 12.", ...changes };
}

export function buildStep(changes: Partial<StepView> = {}): StepView {
  return { step: "call_1", status: "completed", title: "analyse_table", round: 1, tool_id: "exec.run_code", duration_ms: 1234, ...changes };
}

export function buildSignal(changes: Partial<SignalView> = {}): SignalView {
  return { signal_id: "sig_1", kind: "followup", state: "accepted", text: "Only the north.", attachments: [], ...changes };
}

export function buildFile(changes: Partial<FileView> = {}): FileView {
  return {
    artifact_id: "art_1",
    ref: "fi:turn_1.outputs/chart.png",
    rn: "ef:default",
    filename: "chart.png",
    mime: "image/png",
    size: 12_345,
    visibility: "external",
    url: "/files/default/default/art_1",
    verdict: "clean",
    ...changes,
  };
}

export function buildAgent(changes: Partial<Agent> = {}): Agent {
  return { id: "support", title: "Support", description: "", icon: "", starters: [], widgets: [], is_default: false, is_ready: true, problems: [], ...changes };
}
