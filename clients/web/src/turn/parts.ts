/** Lists the parts of a turn for rendering: by round, thinking, work and messages in order. */
import { isOpen } from "../api";
import type { ApprovalView, FileView, SignalView, StepView, TextView, TurnView } from "../api";
import { isStop } from "./signals/receipts";

export type TextKind = "thinking" | "note" | "written" | "answer";
export type Part =
  | { kind: Exclude<TextKind, "written">; key: string; text: TextView; isGrowing: boolean }
  /** `file` is the file that the text has become. */
  | { kind: "written"; key: string; text: TextView; isGrowing: boolean; file: FileView | undefined }
  | { kind: "step"; key: string; step: StepView; isPending: boolean }
  | { kind: "approval"; key: string; approval: ApprovalView }
  /** `isStopped`: a stop ended the answer in the round in which the signal was delivered. */
  | { kind: "signal"; key: string; signal: SignalView; isStopped: boolean };

const OPEN_SIGNALS: readonly SignalView["state"][] = ["accepted", "queued"];

/** Whether the message can still be edited or withdrawn. */
export function isChangeable(signal: SignalView): boolean {
  const hasWords = signal.kind === "followup" || (signal.kind === "steer" && signal.text.trim() !== "");
  return hasWords && OPEN_SIGNALS.includes(signal.state);
}

export function buildParts(turn: TurnView): readonly Part[] {
  const growing = findGrowing(turn);
  const said = turn.signals.filter((signal) => !isToldElsewhere(turn, signal));
  const parts = findRounds(turn, said).flatMap((round) => buildRound(turn, said, round, growing));
  if (turn.answer !== undefined && turn.answer !== "" && !parts.some((part) => part.kind === "answer")) {
    parts.push(textPart(turn, answerText(turn, turn.answer), null));
  }
  return [...parts, ...said.filter((signal) => signal.round === undefined).map((signal) => signalPart(turn, signal))];
}

/** The files to list below the work: those without a card of their own. */
export function findOutputs(turn: TurnView): readonly FileView[] {
  const written = new Set(turn.texts.map((text) => findWritten(turn, text)?.artifact_id));
  return turn.files.filter((file) => file.visibility === "external" && !written.has(file.artifact_id));
}

/** Approvals show their own answers, and the end of the turn shows a stop. */
function isToldElsewhere(turn: TurnView, signal: SignalView): boolean {
  return signal.kind === "approve" || signal.kind === "deny" || (isStop(signal) && !isOpen(turn));
}

/** The file that the last text written to its path has become. */
function findWritten(turn: TurnView, text: TextView): FileView | undefined {
  const path = text.artifact;
  if (path === undefined || turn.texts.findLast((other) => other.artifact === path) !== text) return undefined;
  return turn.files.findLast((file) => file.visibility === "external" && (file.ref.endsWith(`.${path}`) || file.ref.endsWith(`/${path}`)));
}

/** The answer as last shown; empty if there is none yet. */
export function lastAnswer(turn: TurnView): string {
  return turn.answer ?? turn.texts.findLast((text) => text.channel === "answer" && !isData(text))?.text ?? "";
}

function buildRound(turn: TurnView, said: readonly SignalView[], round: number, growing: TextView | null): Part[] {
  const texts = turn.texts.filter((text) => text.round === round && !isData(text)).map((text) => withoutMarks(turn, text)).filter((text) => text.text.trim() !== "");
  const approvals = turn.approvals.filter((approval) => approval.round === round);
  const open = approvals.filter((approval) => approval.state === "pending");
  const here = said.filter((signal) => signal.round === round);
  return [
    ...here.filter((signal) => !isLate(turn, signal)).map((signal) => signalPart(turn, signal)),
    ...texts.filter((text) => text.channel !== "answer").map((text) => textPart(turn, text, growing)),
    // An answered approval precedes its call; a pending one comes last.
    ...approvals.filter((approval) => approval.state !== "pending").map(approvalPart),
    ...turn.steps.filter((step) => step.round === round && !wasDenied(step, approvals)).map((step) => stepPart(step, open)),
    ...open.map(approvalPart),
    ...texts.filter((text) => text.channel === "answer").map((text) => textPart(turn, text, growing)),
    ...here.filter((signal) => isLate(turn, signal)).map((signal) => signalPart(turn, signal)),
  ];
}

/**
 * A message is delivered before a round begins. A stop ends the round in which it is delivered, with all that came
 * beside it.
 */
function isLate(turn: TurnView, signal: SignalView): boolean {
  return isStop(signal) || (turn.outcome === "stopped" && signal.round === turn.rounds);
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

/** A denied call was never made; its approval shows that. */
function wasDenied(step: StepView, approvals: readonly ApprovalView[]): boolean {
  return approvals.some((approval) => approval.call_id === step.call_id && (approval.state === "denied" || approval.state === "expired" || approval.state === "withdrawn"));
}

/**
 * The mark of a plan step at the beginning of a line, such as `✓ [2]`, or the beginning of one at the end of the text.
 */
const PLAN_MARK = /^[ \t]*[□…✓✗][ \t]*(?:\[(\d{1,3})\]|(\d{1,3})[.:](?!\S))[ \t]*(.*)$/;
const BEGUN_MARK = /(?:^|\n)[ \t]*[□…✓✗][ \t]*(?:\[?\d{0,3})$/;

/** The agent's notes without the plan marks, which the plan card shows. */
function withoutMarks(turn: TurnView, text: TextView): TextView {
  if (turn.plans.length === 0 || kindOfText(text) !== "note" || !/[□…✓✗]/.test(text.text)) return text;
  const labels = new Set(turn.plans.flatMap((plan) => plan.steps.map((step) => step.label)));
  const lines = text.text.replace(BEGUN_MARK, "").split("\n").flatMap((line) => {
    const rest = PLAN_MARK.exec(line)?.[3];
    if (rest === undefined) return [line];
    return rest === "" || labels.has(rest.trim()) ? [] : [rest];
  });
  return cached(text, lines.join("\n"));
}

/** The same object for the same text, so that it renders once. */
const cleaned = new WeakMap<TextView, TextView>();

function cached(text: TextView, words: string): TextView {
  const known = cleaned.get(text);
  if (known?.text === words) return known;
  const made = { ...text, text: words };
  cleaned.set(text, made);
  return made;
}

function textPart(turn: TurnView, text: TextView, growing: TextView | null): Part {
  const key = `${text.round}.${text.channel}.${text.instance}`;
  const isGrowing = growing !== null && key === `${growing.round}.${growing.channel}.${growing.instance}`;
  const kind = kindOfText(text);
  return kind === "written" ? { kind, key, text, isGrowing, file: findWritten(turn, text) } : { kind, key, text, isGrowing };
}

function kindOfText(text: TextView): TextKind {
  switch (text.channel) {
    case "thinking":
    case "answer":
      return text.channel;
    case "canvas":
      return "written";
    default:
      return text.marker === "canvas" ? "written" : "note";
  }
}

/** JSON of a workflow's channel is for programs, unless it is shown on the canvas. */
function isData(text: TextView): boolean {
  return text.format === "json" && text.marker !== "canvas" && text.channel !== "timeline_text";
}

function answerText(turn: TurnView, answer: string): TextView {
  return { round: turn.rounds, channel: "answer", instance: 0, marker: "answer", format: "markdown", text: answer };
}

/** A call is not made while its approval is pending. */
function stepPart(step: StepView, open: readonly ApprovalView[]): Part {
  const isPending = step.status === "started" && open.some((approval) => approval.call_id === step.call_id);
  return { kind: "step", key: `step.${step.step}`, step, isPending };
}

function approvalPart(approval: ApprovalView): Part {
  return { kind: "approval", key: `approval.${approval.approval_id}`, approval };
}

function signalPart(turn: TurnView, signal: SignalView): Part {
  return { kind: "signal", key: `signal.${signal.signal_id}`, signal, isStopped: isBesideStop(turn, signal) };
}

/** Whether it was delivered together with a stop. The model may never have read it and does not answer it. */
function isBesideStop(turn: TurnView, signal: SignalView): boolean {
  if (isOpen(turn) || signal.state !== "applied" || isStop(signal)) return false;
  return turn.signals.some((other) => isStop(other) && other.state === "applied" && other.round === signal.round);
}
