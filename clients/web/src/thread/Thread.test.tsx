import { act, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";

import { buildText, buildTurn } from "../testing/builders";
import { renderInPage } from "../testing/harness";
import { TurnActionsContext } from "../turn/actions";
import { Thread } from "./Thread";

const actions = {
  send: vi.fn(),
  answerApproval: vi.fn(),
  editSignal: vi.fn(),
  retractSignal: vi.fn(),
  rate: vi.fn(),
  fork: vi.fn(),
  retry: vi.fn(),
  loadProgram: vi.fn(),
};

test("all loaded messages are printed, with a note about earlier ones", () => {
  const turns = Array.from({ length: 40 }, (_, at) => buildTurn({
    turn_id: `turn_${at}`,
    ordinal: at + 1,
    text: at === 1 ? `${"line\n".repeat(50)}the end of a long question` : "A question.",
    texts: [buildText({ text: at === 2 ? `${"Many words. ".repeat(2_000)}\n\nThe **end** of a long answer.` : `Answer ${at}.` })],
  }));
  vi.stubGlobal("ResizeObserver", class { observe(): void { /* no sizes here */ } unobserve(): void { /* nor here */ } disconnect(): void { /* nor here */ } });
  const { container } = renderInPage(
    <TurnActionsContext value={actions}>
      <Thread turns={turns} pending={[]} hasOlder olderProblem="" loadOlder={vi.fn()} sentCount={0} openedTurnId={null} />
    </TurnActionsContext>,
  );
  expect(container).not.toHaveTextContent("Answer 0.");

  act(() => { window.dispatchEvent(new Event("beforeprint")); });
  expect(container).toHaveTextContent("Answer 0.");
  expect(container).toHaveTextContent("Answer 39.");
  expect(container).toHaveTextContent("the end of a long question");
  expect(container).toHaveTextContent("The end of a long answer.");
  expect(screen.getByText(/Earlier messages are not printed/)).toBeInTheDocument();
  act(() => { window.dispatchEvent(new Event("afterprint")); });

  expect(container).not.toHaveTextContent("Answer 0.");
});
