/** A turn as the list of parts that is drawn: round by round, what was thought, done and said, in its order. */
import type { ApprovalView, SignalView, StepView, TextView, TurnView } from "../api";

export type TextKind = "thinking" | "note" | "written" | "answer";
export type Part =
  | { kind: TextKind; key: string; text: TextView; isGrowing: boolean }
  | { kind: "step"; key: string; step: StepView; isAsked: boolean }
  | { kind: "approval"; key: string; approval: ApprovalView }
  | { kind: "signal"; key: string; signal: SignalView };

const OPEN_SIGNALS: readonly SignalView["state"][] = ["accepted", "queued"];

/** Whether what was said can still be changed or taken back. */
export function isChangeable(signal: SignalView): boolean {
  const hasWords = signal.kind === "followup" || (signal.kind === "steer" && signal.text.trim() !== "");
  return hasWords && OPEN_SIGNALS.includes(signal.state);
}

export function buildParts(turn: TurnView): readonly Part[] {
  const growing = findGrowing(turn);
  const said = turn.signals.filter((signal) => signal.kind !== "approve" && signal.kind !== "deny");
  const parts = findRounds(turn, said).flatMap((round) => buildRound(turn, said, round, growing));
  if (turn.answer !== undefined && turn.answer !== "" && !parts.some((part) => part.kind === "answer")) {
    parts.push(textPart(answerText(turn, turn.answer), null));
  }
  return [...parts, ...said.filter((signal) => signal.round === undefined).map(signalPart)];
}

/** The answer as it was shown last; empty when there is none yet. */
export function lastAnswer(turn: TurnView): string {
  return turn.answer ?? turn.texts.findLast((text) => text.channel === "answer")?.text ?? "";
}

function buildRound(turn: TurnView, said: readonly SignalView[], round: number, growing: TextView | null): Part[] {
  const texts = turn.texts.filter((text) => text.round === round && text.text !== "");
  const asked = turn.approvals.filter((approval) => approval.round === round);
  const open = asked.filter((approval) => approval.state === "pending");
  const here = said.filter((signal) => signal.round === round);
  return [
    ...here.filter((signal) => !isLate(turn, signal)).map(signalPart),
    ...texts.filter((text) => text.channel !== "answer").map((text) => textPart(text, growing)),
    // What was answered stands before its call, what is asked still is the last that is read.
    ...asked.filter((approval) => approval.state !== "pending").map(approvalPart),
    ...turn.steps.filter((step) => step.round === round).map((step) => stepPart(step, open)),
    ...open.map(approvalPart),
    ...texts.filter((text) => text.channel === "answer").map((text) => textPart(text, growing)),
    ...here.filter((signal) => isLate(turn, signal)).map(signalPart),
  ];
}

/** Words are taken up before a round begins; a stop ends the round it is taken up in, with what came beside it. */
function isLate(turn: TurnView, signal: SignalView): boolean {
  const isStop = signal.kind === "cancel" || (signal.kind === "steer" && signal.text.trim() === "");
  return isStop || (turn.outcome === "stopped" && signal.round === turn.rounds);
}

function findRounds(turn: TurnView, said: readonly SignalView[]): readonly number[] {
  const rounds = new Set<number>();
  for (const item of [...turn.texts, ...turn.steps, ...turn.approvals, ...said]) {
    if (item.round !== undefined) rounds.add(item.round);
  }
  return [...rounds].sort((first, second) => first - second);
}

function findGrowing(turn: TurnView): TextView | null {
  const last = turn.texts.at(-1);
  return turn.status === "running" && last !== undefined && last.round > turn.sealed_round ? last : null;
}

function textPart(text: TextView, growing: TextView | null): Part {
  const key = `${text.round}.${text.channel}.${text.instance}`;
  return { kind: kindOfText(text), key, text, isGrowing: text === growing };
}

function kindOfText(text: TextView): TextKind {
  switch (text.channel) {
    case "thinking":
    case "answer":
      return text.channel;
    case "canvas":
      return "written";
    default:
      return "note";
  }
}

function answerText(turn: TurnView, answer: string): TextView {
  return { round: turn.rounds, channel: "answer", instance: 0, marker: "answer", format: "markdown", text: answer };
}

/** A call is not made as long as the person is asked for it. */
function stepPart(step: StepView, open: readonly ApprovalView[]): Part {
  const isAsked = step.status === "started" && open.some((approval) => approval.call_id === step.call_id);
  return { kind: "step", key: `step.${step.step}`, step, isAsked };
}

function approvalPart(approval: ApprovalView): Part {
  return { kind: "approval", key: `approval.${approval.approval_id}`, approval };
}

function signalPart(signal: SignalView): Part {
  return { kind: "signal", key: `signal.${signal.signal_id}`, signal };
}
