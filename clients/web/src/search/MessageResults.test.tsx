import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";

import type { SearchHit } from "../api";
import { problemResponse, renderInPage } from "../testing/harness";
import type { Answer, RecordedRequest, Page } from "../testing/harness";
import { MessageResults } from "./MessageResults";

const NOW = Date.parse("2026-03-01T12:00:00Z");
const onOpen = vi.fn();

function buildHit(number: number, changes: Partial<SearchHit> = {}): SearchHit {
  return {
    conversation_id: "conv_1",
    turn_id: `turn_${number}`,
    title: "Ports",
    target: "assistant",
    ref: `ar:turn_${number}`,
    snippet: `The harbour number ${number}.`,
    ts: "2026-03-01T10:00:00Z",
    score: 1,
    ...changes,
  };
}

function page(items: readonly SearchHit[], cursor?: string): Answer {
  return { status: 200, body: { items, mode: "lexical", next_cursor: cursor ?? null } };
}

function show(answer: (requests: RecordedRequest) => Answer | Promise<Answer>, conversationId: string | null = null): Page {
  return renderInPage(<MessageResults search="harbour" conversationId={conversationId} now={NOW} onOpen={onOpen} />, answer);
}

test("a matching message shows its conversation and time, and opens at its turn", async () => {
  const { requests } = show(() => page([buildHit(1)]));

  const hit = await screen.findByRole("link");
  await userEvent.click(hit);

  expect(hit).toHaveTextContent("PortsThe harbour number 1.Answer · 2 h");
  expect(hit.querySelector("mark")).toHaveTextContent("harbour");
  expect(hit).toHaveAttribute("href", "#/conv_1?turn=turn_1");
  expect(onOpen).toHaveBeenCalledExactlyOnceWith("conv_1", "turn_1");
  expect(requests).toMatchObject([{ method: "POST", path: "/search", body: { query: "harbour", mode: "lexical" } }]);
  expect(requests[0]?.body).not.toHaveProperty("conversation_id");
});

test("within one conversation only its messages are searched, on every page", async () => {
  const { requests } = show(({ body }) => ((body as { cursor?: string }).cursor === "c1" ? page([buildHit(2)]) : page([buildHit(1)], "c1")), "conv_1");

  expect(await screen.findByRole("link")).toHaveTextContent(/^The harbour number 1\.Answer · 2 h$/);
  expect(screen.getByRole("region", { name: "In this conversation" })).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Show more messages" }));

  await waitFor(() => { expect(screen.getAllByRole("link")).toHaveLength(2); });
  expect(requests).toMatchObject([{ body: { conversation_id: "conv_1" } }, { body: { conversation_id: "conv_1", cursor: "c1" } }]);
});

test("the next page uses the server's cursor, and its first message gets the focus", async () => {
  const { requests } = show(({ body }) => ((body as { cursor?: string }).cursor === "c1" ? page([buildHit(3)]) : page([buildHit(1), buildHit(2)], "c1")));

  await userEvent.click(await screen.findByRole("button", { name: "Show more messages" }));

  await waitFor(() => { expect(screen.getAllByRole("link")[2]).toHaveFocus(); });
  expect(requests).toHaveLength(2);
  expect(screen.queryByRole("button", { name: "Show more messages" })).toBeNull();
  expect(screen.getByText("3 messages found.")).toHaveRole("status");
});

test("the first new message gets the focus even if it is rendered late", async () => {
  // The frame after the response comes before the new messages are rendered, as on a busy machine.
  vi.stubGlobal("requestAnimationFrame", (draw: FrameRequestCallback) => { draw(0); return 0; });
  show(({ body }) => ((body as { cursor?: string }).cursor === "c1" ? page([buildHit(3)]) : page([buildHit(1), buildHit(2)], "c1")));

  await userEvent.click(await screen.findByRole("button", { name: "Show more messages" }));

  await waitFor(() => { expect(screen.getAllByRole("link")[2]).toHaveFocus(); });
  vi.unstubAllGlobals();
});

test("the focus stays in a text field while more messages load", async () => {
  let send: (answer: Answer) => void = () => undefined;
  const later = new Promise<Answer>((resolve) => { send = resolve; });
  show(({ body }) => ((body as { cursor?: string }).cursor === "c1" ? later : page([buildHit(1), buildHit(2)], "c1")));
  const field = document.body.appendChild(document.createElement("input"));

  await userEvent.click(await screen.findByRole("button", { name: "Show more messages" }));
  field.focus();
  send(page([buildHit(3)]));

  expect(await screen.findByText("3 messages found.")).toBeInTheDocument();
  expect(field).toHaveFocus();
  field.remove();
});

test("a search without results says so", async () => {
  show(() => page([]));

  expect(await screen.findByText("No matching messages.")).toBeVisible();
});

test("an error shows the server's text, and the search can be retried", async () => {
  const answers = [problemResponse(422, "You already have 10 open searches."), page([buildHit(1)])];
  show(() => answers.shift() ?? page([]));

  expect(await screen.findByRole("alert")).toHaveTextContent("You already have 10 open searches.");
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));

  expect(await screen.findByRole("link")).toBeVisible();
  expect(screen.queryByRole("alert")).toBeNull();
});
