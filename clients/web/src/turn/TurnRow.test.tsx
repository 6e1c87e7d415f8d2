import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";

import { buildFile, buildSignal, buildStep, buildText, buildTurn } from "../testing/builders";
import { renderInPage } from "../testing/harness";
import type { Page } from "../testing/harness";
import type { TurnView } from "../api";
import { TurnActionsContext } from "./actions";
import { TurnRow } from "./TurnRow";

const actions = {
  ask: vi.fn(),
  answerApproval: vi.fn(() => Promise.resolve()),
  editSignal: vi.fn(() => Promise.resolve()),
  retractSignal: vi.fn(() => Promise.resolve()),
  judge: vi.fn(() => Promise.resolve()),
  fork: vi.fn(() => Promise.resolve()),
};

function show(turn: TurnView): Page {
  return renderInPage(<TurnActionsContext value={actions}><TurnRow turn={turn} isLast /></TurnActionsContext>);
}

const APPROVAL = {
  approval_id: "appr_1",
  call_id: "call_1",
  tool_id: "mail.send",
  params: { to: "ann@example.org" },
  cut: false,
  round: 1,
  expires_at: "2999-01-01T00:00:00Z",
  reason: "",
  state: "pending" as const,
};

test("a turn shows what was said, done and answered", async () => {
  const { opened } = show(buildTurn({ texts: [buildText()], steps: [buildStep({ params: { rows: 3 }, result_preview: "ok <b>" })], files: [buildFile({ filename: "out.csv", mime: "text/csv" })] }));

  expect(screen.getByRole("group", { name: "You said" })).toHaveTextContent("What is the total?");
  await userEvent.click(screen.getByRole("button", { name: "Step analyse_table, done, 1.2 s" }));
  expect(screen.getByText("ok <b>")).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Open out.csv" }));
  expect(opened).toMatchObject([{ kind: "file", file: { filename: "out.csv" } }]);
});

test("a call that was cut short by a stop did not fail", () => {
  show(buildTurn({ steps: [buildStep({ status: "error", error: "cancelled" })] }));

  expect(screen.getByRole("button", { name: "Step analyse_table, cancelled, 1.2 s" })).toBeVisible();
});

test("a step waits for the person as long as they are asked, and runs when they have said yes", () => {
  const steps = [buildStep({ status: "started", call_id: "call_1" }), buildStep({ step: "call_2", status: "started", call_id: "call_2", title: "web.search" })];
  const turn = buildTurn({ status: "waiting", steps, approvals: [APPROVAL] });
  const { unmount } = show(turn);

  expect(screen.getByRole("button", { name: /^Step analyse_table, waits for you/ })).toBeVisible();
  expect(screen.getByRole("button", { name: /^Step web.search, running/ })).toBeVisible();
  unmount();
  show({ ...turn, status: "running", approvals: [{ ...APPROVAL, state: "approved" as const }] });

  expect(screen.getByRole("button", { name: /^Step analyse_table, running/ })).toBeVisible();
});

test("a call that waits is approved or denied with a reason", async () => {
  show(buildTurn({ status: "waiting", approvals: [APPROVAL] }));
  const question = within(screen.getByRole("region", { name: "Approval of mail.send" }));

  expect(question.getByText("ann@example.org")).toBeVisible();
  await userEvent.type(question.getByLabelText("Reason (optional)"), "Not today.");
  await userEvent.click(question.getByRole("button", { name: "Deny" }));

  expect(actions.answerApproval).toHaveBeenCalledWith("appr_1", "deny", "Not today.");
});

test("what was answered is told and not asked again", () => {
  show(buildTurn({ approvals: [{ ...APPROVAL, state: "denied", reason: "Not today." }] }));

  expect(screen.getByText(/was denied: Not today\./)).toBeVisible();
  expect(screen.queryByRole("button", { name: "Approve" })).toBeNull();
});

test("words that wait can be changed and taken back", async () => {
  show(buildTurn({ status: "running", signals: [buildSignal()] }));

  await userEvent.click(screen.getByRole("button", { name: "Change what you said" }));
  await userEvent.clear(screen.getByLabelText("What you said"));
  await userEvent.type(screen.getByLabelText("What you said"), "Only the south.");
  await userEvent.click(screen.getByRole("button", { name: "Save" }));
  await userEvent.click(screen.getByRole("button", { name: "Take it back" }));

  expect(actions.editSignal).toHaveBeenCalledWith("sig_1", "Only the south.");
  expect(actions.retractSignal).toHaveBeenCalledWith("sig_1");
});

test("words that were taken up can't be changed any more", () => {
  show(buildTurn({ signals: [buildSignal({ state: "applied", round: 1 })] }));

  expect(screen.getByText("You added · taken up in round 1")).toBeVisible();
  expect(screen.queryByRole("button", { name: "Take it back" })).toBeNull();
});

test("a judgement is given, with words, and cleared by pressing it again", async () => {
  const feedback = [{ origin: "user" as const, reaction: "ok" as const, text: "", ts: "" }];
  show(buildTurn({ texts: [buildText()], feedback }));

  expect(screen.getByRole("button", { name: "Good answer" })).toHaveAttribute("aria-pressed", "true");
  await userEvent.click(screen.getByRole("button", { name: "Bad answer" }));
  expect(actions.judge).toHaveBeenLastCalledWith("turn_1", "not_ok", "");
  await userEvent.type(screen.getByLabelText(/What was good or bad/), "Too short");
  await userEvent.click(screen.getByRole("button", { name: "Save comment" }));
  expect(actions.judge).toHaveBeenLastCalledWith("turn_1", "ok", "Too short");
  await userEvent.click(screen.getByRole("button", { name: "Good answer" }));
  expect(actions.judge).toHaveBeenLastCalledWith("turn_1", null, "");
});

test("a failure says what went wrong, and the work so far stays", () => {
  const error = { type: "urn:everturn:problem:model", title: "The model is out of reach", status: 503, detail: "Try again later." };
  show(buildTurn({ status: "failed", error, texts: [buildText()] }));

  expect(screen.getByRole("group", { name: "The turn failed" })).toHaveTextContent("Try again later.");
  expect(screen.getByText("The total is 12.")).toBeVisible();
});

test("a suggested question is asked when it is pressed", async () => {
  show(buildTurn({ texts: [buildText()], followups: ["Which was best?"] }));

  await userEvent.click(screen.getByRole("button", { name: "Which was best?" }));

  expect(actions.ask).toHaveBeenCalledWith("Which was best?");
});

test("a file name is text, whatever stands in it", () => {
  const filename = '"><img src=x onerror=alert(1)>.csv';
  const { container } = show(buildTurn({ files: [buildFile({ filename, mime: "text/csv" })] }));

  expect(screen.getByRole("button", { name: `Open ${filename}` })).toBeVisible();
  expect(container.querySelector("img")).toBeNull();
});
