import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import type { JSX } from "react";
import { beforeEach, expect, test, vi } from "vitest";

import type { SignalView } from "../api";
import { Composer } from "../composer/Composer";
import { buildSignal, buildTurn } from "../testing/builders";
import { renderInPage } from "../testing/harness";
import type { Answer } from "../testing/harness";
import { TurnActionsContext } from "../turn/actions";
import { EditsContext } from "../turn/signals/edits";
import { TurnRow } from "../turn/TurnRow";
import { useEditDrafts } from "./useEditDrafts";

const actions = {
  send: vi.fn(),
  answerApproval: vi.fn(() => Promise.resolve()),
  editSignal: vi.fn(() => Promise.resolve()),
  retractSignal: vi.fn(() => Promise.resolve()),
  rate: vi.fn(() => Promise.resolve()),
  fork: vi.fn(() => Promise.resolve()),
  retry: vi.fn(() => Promise.resolve()),
  loadProgram: vi.fn(() => Promise.resolve("")),
};
const onAccepted = vi.fn();
const onStop = vi.fn();

beforeEach(() => { sessionStorage.clear(); });

interface ConversationProps {
  signals: readonly SignalView[];
  /** Whether the turn is near the viewport, and so in the DOM. */
  isNear?: boolean;
}

/** A turn with these signals, and the message field. */
function Conversation({ signals, isNear = true }: ConversationProps): JSX.Element {
  const turn = buildTurn({ status: "running", signals });
  const { edits, moved } = useEditDrafts("conv_1", [turn]);
  return (
    <TurnActionsContext value={actions}>
      <EditsContext value={edits}>
        {isNear && <TurnRow turn={turn} isLast />}
        <Composer conversationId="conv_1" isBusy isStopping={false} inserted={moved} onAccepted={onAccepted} onStop={onStop} />
      </EditsContext>
    </TurnActionsContext>
  );
}

async function beginEdit(more: string): Promise<void> {
  await userEvent.click(screen.getByRole("button", { name: "Edit" }));
  await userEvent.type(screen.getByRole("textbox", { name: "Edit your message" }), more);
}

const field = (): HTMLElement => screen.getByRole("textbox", { name: "Your message" });

test("an unsaved edit of a delivered message moves to the field, with a notice", async () => {
  const { rerender } = renderInPage(<Conversation signals={[buildSignal()]} />);
  await beginEdit(" And the south.");

  rerender(<Conversation signals={[buildSignal({ state: "applied", round: 1 })]} />);

  expect(field()).toHaveValue("Only the north. And the south.");
  expect(screen.getByRole("alert")).toHaveTextContent("The message was delivered before your edit was saved. Your text is now in the message field.");
  expect(screen.queryByRole("textbox", { name: "Edit your message" })).toBeNull();
  expect(field()).toHaveFocus();
  await userEvent.keyboard(" Or not.");
  expect(field()).toHaveValue("Only the north. And the south. Or not.");
});

test("the edit goes below a message that is being written", async () => {
  const { rerender } = renderInPage(<Conversation signals={[buildSignal()]} />);
  await userEvent.type(field(), "Also:");
  await beginEdit(" And the south.");

  rerender(<Conversation signals={[buildSignal({ state: "promoted" })]} />);

  expect(field()).toHaveValue("Also:\n\nOnly the north. And the south.");
});

test("the edit stays when the message above it is sent", async () => {
  const way: ((answer: Answer) => void)[] = [];
  const { rerender } = renderInPage(<Conversation signals={[buildSignal()]} />, () => new Promise((resolve) => { way.push(resolve); }));
  await beginEdit(" And the south.");
  await userEvent.type(field(), "Also the west.{Enter}");

  rerender(<Conversation signals={[buildSignal({ state: "applied", round: 1 })]} />);
  way[0]?.({ status: 202, body: { conversation_id: "conv_1", signal_id: "sig_2", receipt: { state: "accepted" }, events_url: "/" } });

  await vi.waitFor(() => { expect(field()).toHaveValue("Only the north. And the south."); });
});

test("an edit is kept, and moved, while its message is out of view", async () => {
  const { rerender } = renderInPage(<Conversation signals={[buildSignal()]} />);
  await beginEdit(" And the south.");

  rerender(<Conversation signals={[buildSignal()]} isNear={false} />);
  rerender(<Conversation signals={[buildSignal()]} />);
  expect(screen.getByRole("textbox", { name: "Edit your message" })).toHaveValue("Only the north. And the south.");
  expect(screen.getByRole("textbox", { name: "Edit your message" })).not.toHaveFocus();
  rerender(<Conversation signals={[buildSignal({ state: "applied", round: 1 })]} isNear={false} />);

  expect(field()).toHaveValue("Only the north. And the south.");
});

test("an edit survives a visit to another conversation and a reload", async () => {
  const { unmount } = renderInPage(<Conversation signals={[buildSignal()]} />);
  await beginEdit(" And the south.");
  unmount();

  const { rerender } = renderInPage(<Conversation signals={[buildSignal()]} />);
  expect(screen.getByRole("textbox", { name: "Edit your message" })).toHaveValue("Only the north. And the south.");
  rerender(<Conversation signals={[buildSignal({ state: "applied", round: 1 })]} />);

  expect(field()).toHaveValue("Only the north. And the south.");
});

test("an edit of a message that was withdrawn elsewhere is kept", async () => {
  const { rerender } = renderInPage(<Conversation signals={[buildSignal()]} />);
  await beginEdit(" And the south.");

  rerender(<Conversation signals={[buildSignal({ state: "retracted" })]} />);

  expect(field()).toHaveValue("Only the north. And the south.");
  expect(screen.getByRole("alert")).toHaveTextContent("The message was retracted before your edit was saved.");
});

test.each([["nothing was changed", "", "Only the north."], ["the edit was delivered", " Now.", "Only the north. Now."]])("nothing moves when %s", async (_, more, text) => {
  const { rerender } = renderInPage(<Conversation signals={[buildSignal()]} />);
  await beginEdit(`${more}{Shift}`);

  rerender(<Conversation signals={[buildSignal({ state: "applied", round: 1, text })]} />);

  expect(field()).toHaveValue("");
  expect(screen.queryByRole("alert")).toBeNull();
});
