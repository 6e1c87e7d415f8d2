/** What a screen reader is told while a turn goes on: its landmarks, and not each word that arrives. */
import { isOpen } from "../api";
import type { StepView, TurnView } from "../api";
import { withoutSigns } from "../markdown/withoutSigns";
import { describeFailure } from "../turn/failures";
import { lastAnswer } from "../turn/parts";
import { lookUp, oneLine } from "../ui/wording";

const MAX_ANSWER_CHARS = 600;
/** Signs of Markdown and citations may be as much again. */
const MAX_READ_CHARS = 4 * MAX_ANSWER_CHARS;

/** What happened between two states of the last turn; empty when there is nothing to tell. */
export function tellChange(before: TurnView | undefined, after: TurnView | undefined): string {
  // What was there when the page opened is no news.
  if (after === undefined || before === undefined) return "";
  if (before.turn_id !== after.turn_id) return isOpen(after) ? "The agent started working." : "";
  if (isOpen(before) && !isOpen(after)) return tellEnd(after);
  const asked = after.approvals.find((approval) => approval.state === "pending");
  if (asked !== undefined && !before.approvals.some((approval) => approval.approval_id === asked.approval_id)) {
    return `Allow ${asked.tool_id}? Waiting for your approval.`;
  }
  return tellSteps(before, after);
}

function tellEnd(turn: TurnView): string {
  if (turn.error !== undefined) return `The answer failed: ${describeFailure(turn.error).what}`;
  if (turn.outcome === "cancelled") return "The answer was cancelled.";
  const answer = oneLine(withoutSigns(lastAnswer(turn).slice(0, MAX_READ_CHARS)), MAX_ANSWER_CHARS);
  return answer === "" ? "The answer is complete." : `Answer: ${answer}`;
}

function tellSteps(before: TurnView, after: TurnView): string {
  if (before.steps === after.steps) return "";
  const statuses = new Map(before.steps.map((step) => [step.step, step.status]));
  return after.steps
    .filter((step) => statuses.get(step.step) !== step.status)
    .map((step) => `${step.title} ${sayStatus(step)}.`)
    .join(" ");
}

function sayStatus(step: StepView): string {
  if (step.error === "cancelled") return "was cancelled";
  return lookUp({ started: "is running", completed: "finished", error: "failed" }, step.status, "changed");
}
