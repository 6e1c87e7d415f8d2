/** Screen reader announcements for a running turn: its milestones, not every token. */
import { isOpen } from "../api";
import type { StepView, TurnView } from "../api";
import { toPlainText } from "../markdown/plainText";
import { describeFailure } from "../turn/failures";
import { lastAnswer } from "../turn/parts";
import { lookUp, oneLine } from "../ui/format";

const MAX_ANSWER_CHARS = 600;
/** How much is read before Markdown syntax and citations are removed: they may double the length. */
const MAX_READ_CHARS = 4 * MAX_ANSWER_CHARS;

/** What changed between two states of the last turn; empty if there is nothing to announce. */
export function describeChange(before: TurnView | undefined, after: TurnView | undefined): string {
  // The state at page load is not news.
  if (after === undefined || before === undefined) return "";
  if (before.turn_id !== after.turn_id) return isOpen(after) ? "The agent started working." : "";
  if (isOpen(before) && !isOpen(after)) return describeEnd(after);
  const pending = after.approvals.find((approval) => approval.state === "pending");
  if (pending !== undefined && !before.approvals.some((approval) => approval.approval_id === pending.approval_id)) {
    return `${pending.tool_id} is waiting for your approval.`;
  }
  return describeSteps(before, after);
}

function describeEnd(turn: TurnView): string {
  if (turn.error !== undefined) return `The answer failed: ${describeFailure(turn.error).what}`;
  if (turn.outcome === "cancelled") return "The answer was cancelled.";
  const answer = oneLine(toPlainText(lastAnswer(turn).slice(0, MAX_READ_CHARS)), MAX_ANSWER_CHARS);
  return answer === "" ? "The answer is complete." : `Answer: ${answer}`;
}

function describeSteps(before: TurnView, after: TurnView): string {
  if (before.steps === after.steps) return "";
  const statuses = new Map(before.steps.map((step) => [step.step, step.status]));
  return after.steps
    .filter((step) => statuses.get(step.step) !== step.status)
    .map((step) => `${step.title} ${describeStatus(step)}.`)
    .join(" ");
}

function describeStatus(step: StepView): string {
  if (step.error === "cancelled") return "was cancelled";
  return lookUp({ started: "is running", completed: "finished", error: "failed" }, step.status, "changed");
}
