// @vitest-environment node
import { expect, test } from "vitest";

import { buildStep, buildText, buildTurn } from "../testing/builders";
import { tellChange } from "./announcements";

const running = buildTurn({ status: "running" });

test("words that arrive are not told one by one", () => {
  const more = { ...running, texts: [buildText()] };

  expect(tellChange(running, more)).toBe("");
  expect(tellChange(more, { ...more, texts: [buildText({ text: "The total is 12. And" })] })).toBe("");
});

test("a step is told when it begins and when it ends", () => {
  const begun = { ...running, steps: [buildStep({ status: "started" })] };

  expect(tellChange(running, begun)).toBe("analyse_table is running.");
  expect(tellChange(begun, { ...begun, steps: [buildStep({ status: "error" })] })).toBe("analyse_table failed.");
});

test("the answer is read when it is whole", () => {
  expect(tellChange(running, buildTurn({ texts: [buildText()] }))).toBe("Answer: The total is 12.");
});

test("the answer is read without the signs of its Markdown", () => {
  const table = buildText({ text: "**North** sold most:\n\n| region | units |\n| --- | --- |\n| North | 26 |" });

  expect(tellChange(running, buildTurn({ texts: [table] }))).toBe("Answer: North sold most: region units North 26");
});

test("a step that the person stopped did not fail", () => {
  const begun = { ...running, steps: [buildStep({ status: "started" })] };

  expect(tellChange(begun, { ...begun, steps: [buildStep({ status: "error", error: "cancelled" })] })).toBe("analyse_table was cancelled.");
});

test("a failure and a question are told", () => {
  const error = { type: "urn:everturn:problem:x", title: "The model is out of reach", status: 503, detail: "" };
  const asked = { approval_id: "a", call_id: "c", tool_id: "mail.send", params: {}, cut: false, round: 1, expires_at: "", explanation: "", reason: "", state: "pending" as const };

  expect(tellChange(running, buildTurn({ status: "failed", error }))).toBe("The answer failed: The model is out of reach.");
  expect(tellChange(running, { ...running, status: "waiting", approvals: [asked] })).toContain("Allow mail.send?");
});

test("what was there when the page opened is no news", () => {
  expect(tellChange(undefined, running)).toBe("");
});
