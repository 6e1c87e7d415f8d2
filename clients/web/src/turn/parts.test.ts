// @vitest-environment node
import { expect, test } from "vitest";

import type { TurnView } from "../api";
import { buildFile, buildSignal, buildStep, buildText, buildTurn } from "../testing/builders";
import { buildParts, findOutputs, isChangeable, lastAnswer } from "./parts";

const kinds = (turn: TurnView): string[] => buildParts(turn).map((part) => part.kind);
const keys = (turn: TurnView): string[] => buildParts(turn).map((part) => part.key);
const growing = (turn: TurnView): boolean[] => buildParts(turn).map((part) => "isGrowing" in part && part.isGrowing);

test("a round shows its thinking, then its work, then its answer", () => {
  const turn = buildTurn({
    texts: [buildText(), buildText({ channel: "thinking" }), buildText({ channel: "notes" })],
    steps: [buildStep()],
  });

  expect(kinds(turn)).toEqual(["thinking", "note", "step", "answer"]);
});

test("texts of a workflow are notes or on the canvas, and its data is not shown", () => {
  const shown = [buildText({ channel: "report", marker: "canvas" }), buildText({ channel: "panel", marker: "panel" })];
  const data = [buildText({ channel: "usage", format: "json" }), buildText({ instance: 1, format: "json", text: "{}" })];
  const turn = buildTurn({ texts: [...shown, ...data, buildText({ instance: 2, text: "Done." })] });

  expect(kinds(turn)).toEqual(["written", "note", "answer"]);
  expect(lastAnswer(buildTurn({ texts: data }))).toBe("");
});

test("rounds are in order, whatever the order of their parts", () => {
  const turn = buildTurn({ texts: [buildText({ round: 2 })], steps: [buildStep({ round: 2, step: "b" }), buildStep({ step: "a" })] });

  expect(keys(turn)).toEqual(["step.a", "step.b", "2.answer.0"]);
});

test("a message is shown where it was delivered, and at the end while it waits", () => {
  const applied = buildSignal({ signal_id: "a", state: "applied", round: 2 });
  const turn = buildTurn({
    steps: [buildStep(), buildStep({ round: 2, step: "later" })],
    signals: [buildSignal({ signal_id: "b" }), applied],
  });

  expect(keys(turn)).toEqual(["step.call_1", "signal.a", "step.later", "signal.b"]);
});

test("messages beside a stop follow the round it ended; the stop is shown at the end", () => {
  const signals = [buildSignal({ signal_id: "words", state: "applied", round: 1 }), buildSignal({ signal_id: "stop", kind: "steer", text: "", state: "applied", round: 1 })];

  expect(keys(buildTurn({ outcome: "stopped", steps: [buildStep()], signals }))).toEqual(["step.call_1", "signal.words"]);
  expect(keys(buildTurn({ status: "running", signals: [buildSignal({ signal_id: "stop", kind: "steer", text: "" })] }))).toEqual(["signal.stop"]);
});

test("a pending approval is the last part before the answer", () => {
  const approval = { approval_id: "ap", call_id: "c", tool_id: "mail.send", params: {}, cut: false, round: 1, expires_at: "", explanation: "", reason: "" };

  expect(kinds(buildTurn({ steps: [buildStep()], approvals: [{ ...approval, state: "pending" }] }))).toEqual(["step", "approval"]);
  expect(kinds(buildTurn({ steps: [buildStep()], approvals: [{ ...approval, state: "approved" }] }))).toEqual(["approval", "step"]);
});

test("approval answers are shown by their approvals only", () => {
  expect(kinds(buildTurn({ signals: [buildSignal({ kind: "approve" }), buildSignal({ kind: "deny" })] }))).toEqual([]);
});

test("only the last text of an uncommitted round grows", () => {
  const texts = [buildText({ channel: "thinking" }), buildText({ round: 2, channel: "thinking" }), buildText({ round: 2 })];

  expect(growing(buildTurn({ status: "running", texts, sealed_round: 1 }))).toEqual([false, false, true]);
  expect(growing(buildTurn({ status: "running", texts, sealed_round: 2 }))).toEqual([false, false, false]);
  expect(growing(buildTurn({ texts, sealed_round: 1 }))).toEqual([false, false, false]);
});

test("an answer that was not streamed is shown once", () => {
  expect(kinds(buildTurn({ answer: "Done." }))).toEqual(["answer"]);
  expect(kinds(buildTurn({ answer: "Done.", texts: [buildText({ text: "Done." })] }))).toEqual(["answer"]);
});

test("the final answer replaces the streamed one", () => {
  expect(lastAnswer(buildTurn({ texts: [buildText({ text: "a" }), buildText({ round: 2, text: "b" })] }))).toBe("b");
  expect(lastAnswer(buildTurn({ texts: [buildText()], answer: "c" }))).toBe("c");
  expect(lastAnswer(buildTurn())).toBe("");
});

test("an undelivered message can be edited, a stop cannot", () => {
  expect(isChangeable(buildSignal())).toBe(true);
  expect(isChangeable(buildSignal({ state: "applied" }))).toBe(false);
  expect(isChangeable(buildSignal({ kind: "steer", text: " " }))).toBe(false);
  expect(isChangeable(buildSignal({ kind: "cancel" }))).toBe(false);
});

test("plan marks are removed from notes, other text is kept", () => {
  const plans = [{ plan_id: "p", status: "open", current: true, steps: [{ n: 1, label: "look at the files", status: "done" }, { n: 2, label: "write", status: "in_progress" }] }] as unknown as TurnView["plans"];
  const said = (text: string, more: Partial<TurnView> = {}): string[] => buildParts(buildTurn({ plans, texts: [buildText({ channel: "notes", text })], ...more })).map((part) => ("text" in part ? part.text.text : ""));

  expect(said("✓ [1]\n… [2]")).toEqual([]);
  expect(said("✓ [1] look at the files\nNow the note.\n… [2] Two columns are empty.")).toEqual(["Now the note.\nTwo columns are empty."]);
  expect(said("Now.\n✓ [", { status: "running", sealed_round: 0 })).toEqual(["Now."]);
  expect(said("✓ [1] done", { plans: [] })).toEqual(["✓ [1] done"]);
});

test("a written file has one card, that of its last text", () => {
  const written = (round: number) => buildText({ round, channel: "canvas", artifact: "outputs/note.md", text: `${round}` });
  const file = buildFile({ artifact_id: "art_n", ref: "fi:turn_1.files/outputs/note.md", filename: "note.md", mime: "text/markdown" });
  const other = buildFile({ artifact_id: "art_o", ref: "fi:turn_1.files/outputs/chart.png" });
  const turn = buildTurn({ texts: [written(1), written(2)], files: [file, other], rounds: 2 });

  expect(buildParts(turn).map((part) => (part.kind === "written" ? part.file?.artifact_id : part.kind))).toEqual([undefined, "art_n"]);
  expect(findOutputs(turn)).toEqual([other]);
});

test("a denied call is shown by its approval, not as a step", () => {
  const approval = { approval_id: "ap", call_id: "c", tool_id: "mail.send", params: {}, cut: false, round: 1, expires_at: "", explanation: "", reason: "", state: "denied" as const };

  expect(kinds(buildTurn({ steps: [buildStep({ call_id: "c" }), buildStep({ step: "d", call_id: "d" })], approvals: [approval] }))).toEqual(["approval", "step"]);
});
