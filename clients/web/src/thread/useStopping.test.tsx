import { fireEvent, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import type { JSX } from "react";
import { expect, test, vi } from "vitest";

import { problemResponse, renderInPage } from "../testing/harness";
import type { Answer, Page } from "../testing/harness";
import { useStopping } from "./useStopping";

function Stopper({ turnId }: { turnId: string | undefined }): JSX.Element {
  const { isStopping, problem, stop } = useStopping("conv_1", turnId);
  return (
    <>
      <textarea aria-label="Your message" data-composer />
      <textarea aria-label="Edit your message" />
      <input aria-label="Search" />
      <button type="button" onClick={stop}>{isStopping ? "Cancel now" : "Stop"}</button>
      <p>{problem}</p>
    </>
  );
}

const ACCEPTED: Answer = { status: 202, body: { conversation_id: "conv_1", receipt: { state: "accepted" }, events_url: "/" } };

function show(turnId: string | undefined, answer: Answer = ACCEPTED): Page {
  return renderInPage(<Stopper turnId={turnId} />, () => answer);
}

test("the first stop keeps the answer so far, the second one cancels", async () => {
  const { requests } = show("turn_1");

  await userEvent.click(screen.getByRole("button", { name: "Stop" }));
  await userEvent.click(screen.getByRole("button", { name: "Cancel now" }));

  expect(requests.map(({ path, body }) => [path, body])).toEqual([
    ["/conv_1/signals", { kind: "steer", text: "" }],
    ["/conv_1/signals", { kind: "cancel", text: "" }],
  ]);
});

test("a turn without room for a stop is cancelled", async () => {
  const isCancel = ({ body }: { body: unknown }): boolean => JSON.stringify(body).includes("cancel");
  const { requests } = renderInPage(<Stopper turnId="turn_1" />, (call) => isCancel(call) ? ACCEPTED : problemResponse(429, "This turn already has 500 signals."));

  await userEvent.click(screen.getByRole("button", { name: "Stop" }));

  // A 429 is retried a few times before it is reported.
  await vi.waitFor(() => { expect(requests.some(isCancel)).toBe(true); }, { timeout: 10_000 });
  expect(screen.queryByText(/500 signals/)).toBeNull();
}, 15_000);

test("a stop that was rejected can be retried", async () => {
  show("turn_1", problemResponse(409, "The turn has ended."));

  await userEvent.click(screen.getByRole("button", { name: "Stop" }));

  expect(await screen.findByText("The turn has ended.")).toBeVisible();
  expect(screen.getByRole("button", { name: "Stop" })).toBeVisible();
});

test("Escape stops only from the message field or outside of any field", async () => {
  const { requests } = show("turn_1");

  await userEvent.type(screen.getByLabelText("Search"), "{Escape}");
  await userEvent.type(screen.getByLabelText("Edit your message"), "{Escape}");
  fireEvent.keyDown(screen.getByLabelText("Your message"), { key: "Escape", isComposing: true });
  expect(requests).toEqual([]);
  await userEvent.type(screen.getByLabelText("Your message"), "{Escape}");

  expect(requests).toHaveLength(1);
});

test("without a turn there is nothing to stop", async () => {
  const { requests } = show(undefined);

  await userEvent.click(screen.getByRole("button", { name: "Stop" }));

  expect(requests).toEqual([]);
});
