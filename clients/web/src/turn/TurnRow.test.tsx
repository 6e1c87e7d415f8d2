import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import type { JSX } from "react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { EmbeddedContext } from "../embed/embedding";
import { buildFile, buildSignal, buildStep, buildText, buildTurn } from "../testing/builders";
import { renderInPage, touchScreen } from "../testing/harness";
import type { Page } from "../testing/harness";
import type { TurnView } from "../api";
import { useEditDrafts } from "../thread/useEditDrafts";
import { TurnActionsContext } from "./actions";
import type { TurnActions } from "./actions";
import { EditsContext } from "./signals/edits";
import { TurnRow } from "./TurnRow";

const actions = {
  send: vi.fn(),
  answerApproval: vi.fn(() => Promise.resolve()),
  editSignal: vi.fn<TurnActions["editSignal"]>(() => Promise.resolve()),
  retractSignal: vi.fn(() => Promise.resolve()),
  rate: vi.fn(() => Promise.resolve()),
  fork: vi.fn(() => Promise.resolve()),
  retry: vi.fn(() => Promise.resolve()),
  loadProgram: vi.fn(() => Promise.resolve("print(1)\nprint(2)")),
};

beforeEach(() => { actions.editSignal.mockClear(); });

afterEach(() => { vi.restoreAllMocks(); });

function show(turn: TurnView): Page {
  return renderInPage(<Shown turn={turn} isLast />);
}

function Shown({ turn, isLast }: { turn: TurnView; isLast: boolean }): JSX.Element {
  const { edits } = useEditDrafts("conv_1", [turn]);
  return <TurnActionsContext value={actions}><EditsContext value={edits}><TurnRow turn={turn} isLast={isLast} /></EditsContext></TurnActionsContext>;
}

const APPROVAL = {
  approval_id: "appr_1",
  explanation: "",
  call_id: "call_1",
  tool_id: "mail.send",
  params: { to: "ann@example.org" },
  cut: false,
  round: 1,
  expires_at: "2999-01-01T00:00:00Z",
  reason: "",
  state: "pending" as const,
};

test("a turn shows its message, its work and its answer", async () => {
  const { opened } = show(buildTurn({ texts: [buildText()], steps: [buildStep({ params: { rows: 3 }, result_preview: "ok <b>" })], files: [buildFile({ filename: "out.csv", mime: "text/csv" })] }));

  expect(screen.getByRole("group", { name: "You said" })).toHaveTextContent("What is the total?");
  await userEvent.click(screen.getByRole("button", { name: "Step analyse_table, done, 1.2 s" }));
  expect(screen.getByText("ok <b>")).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Open out.csv" }));
  expect(opened).toMatchObject([{ kind: "file", file: { filename: "out.csv" } }]);
});

test("a call that was interrupted by a stop is not shown as failed", () => {
  show(buildTurn({ steps: [buildStep({ status: "error", error: "cancelled" })] }));

  expect(screen.getByRole("button", { name: "Step analyse_table, cancelled, 1.2 s" })).toBeVisible();
});

test("a step waits while its approval is pending, and runs once approved", () => {
  const steps = [buildStep({ status: "started", call_id: "call_1" }), buildStep({ step: "call_2", status: "started", call_id: "call_2", title: "web.search" })];
  const turn = buildTurn({ status: "waiting", steps, approvals: [APPROVAL] });
  const { unmount } = show(turn);

  expect(screen.getByRole("button", { name: /^Step analyse_table, needs approval/ })).toBeVisible();
  expect(screen.getByRole("button", { name: /^Step web.search, running/ })).toBeVisible();
  unmount();
  show({ ...turn, status: "running", approvals: [{ ...APPROVAL, state: "approved" as const }] });

  expect(screen.getByRole("button", { name: /^Step analyse_table, running/ })).toBeVisible();
});

test("a pending call is approved, or denied with a reason", async () => {
  show(buildTurn({ status: "waiting", approvals: [APPROVAL] }));
  const question = within(screen.getByRole("region", { name: "Approval of mail.send" }));

  expect(question.getByText("ann@example.org")).toBeVisible();
  await userEvent.type(question.getByLabelText("Reason (optional)"), "Not today.");
  await userEvent.click(question.getByRole("button", { name: "Deny" }));

  expect(actions.answerApproval).toHaveBeenCalledWith("appr_1", "deny", "Not today.");
});

test("what a call would do is shown before it is allowed", () => {
  show(buildTurn({ status: "waiting", approvals: [{ ...APPROVAL, details: "1 file:\nadded a\u202eb.py" }] }));

  expect(screen.getByRole("region", { name: "What this would do" })).toHaveTextContent("1 file: added a\\u{202e}b.py");
});

test("an account is connected at its address, or the call is denied", async () => {
  const connecting = { ...APPROVAL, connect_url: "https://login.example/authorize?state=s" };
  show(buildTurn({ status: "waiting", approvals: [connecting] }));

  expect(screen.getByRole("link", { name: "Connect" })).toHaveAttribute("href", connecting.connect_url);
  expect(screen.getByRole("link", { name: "Connect" })).toHaveAttribute("rel", "noopener noreferrer");
  expect(screen.queryByRole("button", { name: "Approve" })).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "Deny" }));
  expect(actions.answerApproval).toHaveBeenCalledWith("appr_1", "deny", "");
});

test("a sign-in for an account is no approval", () => {
  show(buildTurn({ approvals: [{ ...APPROVAL, state: "approved", connect_url: "https://login.example/authorize" }] }));

  expect(screen.getByText("continues after you signed in", { exact: false })).toBeVisible();
  expect(screen.queryByText("was approved", { exact: false })).toBeNull();
});

test("an address that is not one of the web is no link", () => {
  show(buildTurn({ status: "waiting", approvals: [{ ...APPROVAL, connect_url: "javascript:alert(1)" }] }));

  expect(screen.queryByRole("link", { name: "Connect" })).toBeNull();
});

test("an answered approval is shown and not offered again", () => {
  show(buildTurn({ approvals: [{ ...APPROVAL, state: "denied", reason: "Not today." }] }));

  expect(screen.getByText(/was denied: Not today\./)).toBeVisible();
  expect(screen.queryByRole("button", { name: "Approve" })).toBeNull();
});

test("a queued message can be edited and withdrawn", async () => {
  show(buildTurn({ status: "running", signals: [buildSignal()] }));

  await userEvent.click(screen.getByRole("button", { name: "Edit" }));
  await userEvent.clear(screen.getByRole("textbox", { name: "Edit your message" }));
  await userEvent.type(screen.getByRole("textbox", { name: "Edit your message" }), "Only the south.");
  await userEvent.click(screen.getByRole("button", { name: "Save" }));
  await userEvent.click(screen.getByRole("button", { name: "Retract" }));

  expect(actions.editSignal).toHaveBeenCalledWith("sig_1", "Only the south.");
  expect(actions.retractSignal).toHaveBeenCalledWith("sig_1");
});

test("Enter saves an edit, Shift+Enter adds a line break", async () => {
  show(buildTurn({ status: "running", signals: [buildSignal()] }));

  await userEvent.click(screen.getByRole("button", { name: "Edit" }));
  const field = screen.getByRole("textbox", { name: "Edit your message" });
  await userEvent.clear(field);
  await userEvent.type(field, " {Enter}");
  expect(actions.editSignal).not.toHaveBeenCalled();
  await userEvent.type(field, "one{Shift>}{Enter}{/Shift}two{Enter}");

  expect(actions.editSignal.mock.calls).toEqual([["sig_1", " one\ntwo"]]);
  expect(screen.queryByRole("textbox")).toBeNull();
});

test("on a touch screen Enter adds a line to an edit, and the button saves", async () => {
  touchScreen();
  show(buildTurn({ status: "running", signals: [buildSignal()] }));

  await userEvent.click(screen.getByRole("button", { name: "Edit" }));
  const field = screen.getByRole("textbox", { name: "Edit your message" });
  expect(field).toHaveAttribute("enterkeyhint", "enter");
  await userEvent.type(field, "{Enter}And the south.");
  await userEvent.click(screen.getByRole("button", { name: "Save" }));

  expect(actions.editSignal.mock.calls).toEqual([["sig_1", "Only the north.\nAnd the south."]]);
});

test("a delivered message can no longer be edited", () => {
  show(buildTurn({ signals: [buildSignal({ state: "applied", round: 1 })] }));

  expect(screen.getByText("Delivered")).toBeVisible();
  expect(screen.queryByRole("button", { name: "Retract" })).toBeNull();
});

test.each([["stopped", { kind: "steer", text: "" }], ["cancelled", { kind: "cancel", text: "" }]] as const)("a message that was delivered when the answer was %s gets no answer and says so", (outcome, stop) => {
  const words = buildSignal({ state: "applied", round: 2 });
  const earlier = buildSignal({ signal_id: "sig_0", state: "applied", round: 1, text: "Also the west." });
  const end = buildSignal({ signal_id: "sig_2", state: "applied", round: 2, ...stop });
  show(buildTurn({ status: outcome === "stopped" ? "completed" : "cancelled", outcome, rounds: 2, sealed_round: 2, signals: [earlier, words, end] }));

  const receipts = screen.getAllByRole("group", { name: "You added a message" });
  expect(receipts.map((each) => each.textContent)).toEqual(["Also the west.Delivered", "Only the north.Delivered, but the answer was stopped"]);
});

test("a rating is given, with a comment, and removed by pressing it again", async () => {
  const feedback = [{ origin: "user" as const, reaction: "ok" as const, text: "", ts: "" }];
  show(buildTurn({ texts: [buildText()], feedback }));

  expect(screen.getByRole("button", { name: "Good answer" })).toHaveAttribute("aria-pressed", "true");
  await userEvent.click(screen.getByRole("button", { name: "Bad answer" }));
  expect(actions.rate).toHaveBeenLastCalledWith("turn_1", "not_ok", "");
  await userEvent.type(screen.getByLabelText(/What could be better/), "Too short");
  await userEvent.click(screen.getByRole("button", { name: "Save comment" }));
  expect(actions.rate).toHaveBeenLastCalledWith("turn_1", "ok", "Too short");
  await userEvent.click(screen.getByRole("button", { name: "Good answer" }));
  expect(actions.rate).toHaveBeenLastCalledWith("turn_1", null, "");
});

test("a failure that would happen again is not retried", () => {
  const error = { type: "urn:everturn:problem:model-failed", title: "The model did not answer.", status: 502, detail: "The key was rejected" };
  show(buildTurn({ status: "failed", error }));

  const failure = screen.getByRole("group", { name: "The answer failed" });
  expect(failure).toHaveTextContent(/^The model can’t answer\. The same message would fail again\. Contact your administrator\.Technical details$/);
  expect(within(failure).queryByRole("button", { name: "Try again" })).toBeNull();
});

test("a failure is described once, keeps the work so far, and can be retried", async () => {
  const error = { type: "urn:everturn:problem:model-unavailable", title: "The model did not answer.", status: 503, detail: "The language model did not answer. 500 server_error" };
  const turn = buildTurn({ status: "failed", error, texts: [buildText()] });
  show(turn);

  const failure = screen.getByRole("group", { name: "The answer failed" });
  expect(failure).toHaveTextContent(/^The model didn’t answer\. Try again in a moment\.\s*Try againTechnical details$/);
  expect(screen.getByText("The total is 12.")).toBeVisible();
  await userEvent.click(within(failure).getByRole("button", { name: "Technical details" }));
  expect(failure).toHaveTextContent("500 server_error");
  await userEvent.click(within(failure).getByRole("button", { name: "Try again" }));

  expect(actions.retry).toHaveBeenCalledWith(turn);
});

test("an answer that was cut off can be continued if it is the last one", async () => {
  const turn = buildTurn({ outcome: "capped", texts: [buildText()] });
  const { unmount } = show(turn);

  expect(screen.getByText(/the agent reached a limit/i)).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Continue" }));
  expect(actions.send).toHaveBeenLastCalledWith("Continue.");
  unmount();
  renderInPage(<Shown turn={turn} isLast={false} />);

  expect(screen.queryByRole("button", { name: "Continue" })).toBeNull();
});

test.each([
  ["length", /length limit/, 1],
  ["content_filter", /content filter/, 0],
  ["refusal", /declined/, 0],
  ["incomplete", /the model stopped too early/, 1],
  ["provider_error", /the model stopped answering/, 1],
  ["server_error", /the server failed/, 1],
  ["newer" as "length", /is incomplete/, 1],
] as const)("an answer that was cut off says why: %s", (cut_reason, words, buttons) => {
  show(buildTurn({ outcome: "cut", cut_reason, texts: [buildText()] }));

  expect(screen.getByText(words)).toBeVisible();
  expect(screen.queryAllByRole("button", { name: "Continue" })).toHaveLength(buttons);
});

test("Escape in an edit cancels the edit and nothing else", async () => {
  const outside = vi.fn();
  window.addEventListener("keydown", outside);
  show(buildTurn({ status: "running", signals: [buildSignal()] }));

  await userEvent.click(screen.getByRole("button", { name: "Edit" }));
  await userEvent.type(screen.getByRole("textbox", { name: "Edit your message" }), " And the south.");
  outside.mockClear();
  await userEvent.keyboard("{Escape}");
  window.removeEventListener("keydown", outside);

  expect(screen.queryByRole("textbox")).toBeNull();
  expect(screen.getByText("Only the north.")).toBeVisible();
  expect(outside).not.toHaveBeenCalled();
});

test("the program of a step is shown, a long one in full on demand", async () => {
  show(buildTurn({ steps: [buildStep({ code: "print(1)", code_chars: 17 })] }));

  await userEvent.click(screen.getByRole("button", { name: /^Step analyse_table/ }));
  expect(screen.getByRole("figure", { name: "Code, python" })).toHaveTextContent("print(1)");
  await userEvent.click(screen.getByRole("button", { name: "Show all 17 characters" }));

  expect(await screen.findByText(/print\(2\)/)).toBeVisible();
  expect(actions.loadProgram).toHaveBeenCalledWith("turn_1", "call_1");
  expect(screen.getByRole("button", { name: "Copy code" })).toBeVisible();
});

test("the model's text for a cancelled call is not shown to the user", async () => {
  show(buildTurn({ steps: [buildStep({ status: "error", error: "cancelled", result_preview: "The call was cancelled because the person said something." })] }));

  await userEvent.click(screen.getByRole("button", { name: /^Step analyse_table/ }));

  expect(screen.queryByText(/because the person/)).toBeNull();
});

test("usage figures are shown on demand", async () => {
  show(buildTurn({ texts: [buildText()], rounds: 2, elapsed_ms: 1300 }));

  expect(screen.queryByText("2 rounds · 1.3 s")).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "Details" }));
  expect(screen.getByText("2 rounds · 1.3 s")).toBeVisible();
});

test("a suggested question is sent when pressed", async () => {
  show(buildTurn({ texts: [buildText()], followups: ["Which was best?"] }));

  await userEvent.click(screen.getByRole("button", { name: "Which was best?" }));

  expect(actions.send).toHaveBeenCalledWith("Which was best?");
});

test("a suggested question shows direction overrides and is sent unchanged", async () => {
  show(buildTurn({ texts: [buildText()], followups: ["Pay \u202e001\u2069?"] }));

  await userEvent.click(screen.getByRole("button", { name: "Pay \\u{202e}001\\u{2069}?" }));

  expect(actions.send).toHaveBeenLastCalledWith("Pay \u202e001\u2069?");
});

test("a file name is text, whatever it contains", () => {
  const filename = '"><img src=x onerror=alert(1)>.csv';
  const { container } = show(buildTurn({ files: [buildFile({ filename, mime: "text/csv" })] }));

  expect(screen.getByRole("button", { name: `Open ${filename}` })).toBeVisible();
  expect(container.querySelector("img")).toBeNull();
});

test("an embedded chat neither shows what the model saw nor forks", () => {
  renderInPage(<EmbeddedContext value><Shown turn={buildTurn({ rounds: 1, texts: [buildText()] })} isLast /></EmbeddedContext>);

  expect(screen.getByRole("button", { name: "Copy answer" })).toBeVisible();
  expect(screen.queryByRole("button", { name: "Show what the model saw" })).toBeNull();
  expect(screen.queryByRole("button", { name: "Fork the conversation from here" })).toBeNull();
});

test("a source that is no page shows where it is", () => {
  const rules = { sid: 1, title: "House rules", url: "ks:rules\u202e.md", source_type: "file" } as const;
  show(buildTurn({ texts: [buildText()], citations: [rules, { ...rules, sid: 2, title: "Notes", url: "" }] }));

  const cards = within(screen.getByRole("region", { name: "Sources" })).getAllByRole("listitem");
  expect(cards.map(({ textContent }) => textContent)).toEqual(["1House rulesks:rules\\u{202e}.md", "2Notesfile"]);
  expect(screen.queryByRole("link")).toBeNull();
});

test("a double click forks once", async () => {
  actions.fork.mockReturnValueOnce(new Promise(() => undefined));
  show(buildTurn({ texts: [buildText()] }));

  await userEvent.dblClick(screen.getByRole("button", { name: "Fork the conversation from here" }));

  expect(actions.fork).toHaveBeenCalledOnce();
});
