// @vitest-environment node
import { expect, test } from "vitest";

import { buildStep, buildText, buildTurn } from "../testing/builders";
import { describeChange } from "./announcements";

const running = buildTurn({ status: "running" });

test("streamed words are not announced one by one", () => {
  const more = { ...running, texts: [buildText()] };

  expect(describeChange(running, more)).toBe("");
  expect(describeChange(more, { ...more, texts: [buildText({ text: "The total is 12. And" })] })).toBe("");
});

test("a step is announced when it starts and when it ends", () => {
  const begun = { ...running, steps: [buildStep({ status: "started" })] };

  expect(describeChange(running, begun)).toBe("analyse_table is running.");
  expect(describeChange(begun, { ...begun, steps: [buildStep({ status: "error" })] })).toBe("analyse_table failed.");
});

test("the answer is announced when it is complete", () => {
  expect(describeChange(running, buildTurn({ texts: [buildText()] }))).toBe("Answer: The total is 12.");
});

test("the answer is announced without Markdown syntax", () => {
  const table = buildText({ text: "**North** sold most:\n\n| region | units |\n| --- | --- |\n| North | 26 |" });

  expect(describeChange(running, buildTurn({ texts: [table] }))).toBe("Answer: North sold most: region units North 26");
});

test("a step that the user stopped is not announced as failed", () => {
  const begun = { ...running, steps: [buildStep({ status: "started" })] };

  expect(describeChange(begun, { ...begun, steps: [buildStep({ status: "error", error: "cancelled" })] })).toBe("analyse_table was cancelled.");
});

test("a failure and an approval request are announced", () => {
  const error = { type: "urn:everturn:problem:x", title: "The model is out of reach", status: 503, detail: "" };
  const approval = { approval_id: "a", call_id: "c", tool_id: "mail.send", params: {}, cut: false, round: 1, expires_at: "", explanation: "", reason: "", state: "pending" as const };

  expect(describeChange(running, buildTurn({ status: "failed", error }))).toBe("The answer failed: The model is out of reach.");
  expect(describeChange(running, { ...running, status: "waiting", approvals: [approval] })).toContain("mail.send is waiting for your approval");
});

test("the state at page load is not announced", () => {
  expect(describeChange(undefined, running)).toBe("");
});
