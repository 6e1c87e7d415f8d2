import { render, screen } from "@testing-library/react";
import type { JSX } from "react";
import { expect, test } from "vitest";

import { Unreachable } from "../api";
import type { StateView } from "../api";
import { buildConversation, buildTurn } from "../testing/builders";
import { useOpenedTurn } from "./useOpenedTurn";

const STATE: StateView = {
  conversation: buildConversation(),
  turns: [buildTurn()],
  cursor: "1-1",
};

type LoadBackTo = (turnId: string, stop: AbortSignal) => Promise<boolean>;

interface ShownProps {
  turnId: string | null;
  visit?: number;
  loadBackTo?: LoadBackTo;
}

const never: LoadBackTo = () => new Promise(() => undefined);
const notThere: LoadBackTo = () => Promise.resolve(false);
const lost: LoadBackTo = () => Promise.reject(new Unreachable());

function Shown({ turnId, visit = 1, loadBackTo = never }: ShownProps): JSX.Element {
  const opened = useOpenedTurn({ turnId, visit, state: STATE, loadBackTo });
  return <p>{JSON.stringify([opened.turnId, opened.key, opened.isSought, opened.problem])}</p>;
}

const read = (text: string | null): unknown => JSON.parse(text ?? "");

test("a loaded turn is shown at once, and again when it is chosen again", () => {
  const { container, rerender } = render(<Shown turnId="turn_1" />);
  const first = read(container.textContent);
  rerender(<Shown turnId="turn_1" visit={2} />);

  expect([first, read(container.textContent)]).toEqual([["turn_1", "turn_1 1", false, ""], ["turn_1", "turn_1 2", false, ""]]);
});

test("a turn that is not loaded is looked up while the end is shown", () => {
  const { container } = render(<Shown turnId="turn_9" />);

  expect(read(container.textContent)).toEqual([null, "end", true, ""]);
});

test("a missing turn and a failed load are reported", async () => {
  const { unmount } = render(<Shown turnId="turn_9" loadBackTo={notThere} />);
  expect(await screen.findByText(/"end",false,"This message is no longer in the conversation\."/)).toBeVisible();
  unmount();

  render(<Shown turnId="turn_9" loadBackTo={lost} />);
  expect(await screen.findByText(/Couldn’t open the message: The server is not responding\. Select it again\./)).toBeVisible();
});

test("without a turn the end is shown", () => {
  const { container } = render(<Shown turnId={null} />);

  expect(read(container.textContent)).toEqual([null, "end", false, ""]);
});
