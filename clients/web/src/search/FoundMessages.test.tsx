import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";

import type { SearchHit } from "../api";
import { refuse, renderInPage } from "../testing/harness";
import type { Answer, Asked, Page } from "../testing/harness";
import { FoundMessages } from "./FoundMessages";

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

function show(answer: (asked: Asked) => Answer | Promise<Answer>, conversationId: string | null = null): Page {
  return renderInPage(<FoundMessages search="harbour" conversationId={conversationId} now={NOW} onOpen={onOpen} />, answer);
}

test("a message that says it is told with its conversation and when, and opens at its turn", async () => {
  const { asked } = show(() => page([buildHit(1)]));

  const hit = await screen.findByRole("link");
  await userEvent.click(hit);

  expect(hit).toHaveTextContent("PortsThe harbour number 1.Answer · 2 h");
  expect(hit.querySelector("mark")).toHaveTextContent("harbour");
  expect(hit).toHaveAttribute("href", "#/conv_1?turn=turn_1");
  expect(onOpen).toHaveBeenCalledExactlyOnceWith("conv_1", "turn_1");
  expect(asked).toMatchObject([{ method: "POST", path: "/search", body: { query: "harbour", mode: "lexical" } }]);
  expect(asked[0]?.body).not.toHaveProperty("conversation_id");
});

test("in one conversation only its messages are searched, also on the next page", async () => {
  const { asked } = show(({ body }) => ((body as { cursor?: string }).cursor === "c1" ? page([buildHit(2)]) : page([buildHit(1)], "c1")), "conv_1");

  expect(await screen.findByRole("link")).toHaveTextContent(/^The harbour number 1\.Answer · 2 h$/);
  expect(screen.getByRole("region", { name: "In this chat" })).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "More messages" }));

  await waitFor(() => { expect(screen.getAllByRole("link")).toHaveLength(2); });
  expect(asked).toMatchObject([{ body: { conversation_id: "conv_1" } }, { body: { conversation_id: "conv_1", cursor: "c1" } }]);
});

test("more of them come by the server's cursor, and the first of those has the focus", async () => {
  const { asked } = show(({ body }) => ((body as { cursor?: string }).cursor === "c1" ? page([buildHit(3)]) : page([buildHit(1), buildHit(2)], "c1")));

  await userEvent.click(await screen.findByRole("button", { name: "More messages" }));

  await waitFor(() => { expect(screen.getAllByRole("link")[2]).toHaveFocus(); });
  expect(asked).toHaveLength(2);
  expect(screen.queryByRole("button", { name: "More messages" })).toBeNull();
  expect(screen.getByText("3 messages found.")).toHaveRole("status");
});

test("the first new message has the focus however late it is drawn", async () => {
  // The frame after the answer comes before the new messages are drawn, as on a busy machine.
  vi.stubGlobal("requestAnimationFrame", (draw: FrameRequestCallback) => { draw(0); return 0; });
  show(({ body }) => ((body as { cursor?: string }).cursor === "c1" ? page([buildHit(3)]) : page([buildHit(1), buildHit(2)], "c1")));

  await userEvent.click(await screen.findByRole("button", { name: "More messages" }));

  await waitFor(() => { expect(screen.getAllByRole("link")[2]).toHaveFocus(); });
  vi.unstubAllGlobals();
});

test("the focus stays with a person who writes on while more messages come", async () => {
  let send: (answer: Answer) => void = () => undefined;
  const later = new Promise<Answer>((resolve) => { send = resolve; });
  show(({ body }) => ((body as { cursor?: string }).cursor === "c1" ? later : page([buildHit(1), buildHit(2)], "c1")));
  const field = document.body.appendChild(document.createElement("input"));

  await userEvent.click(await screen.findByRole("button", { name: "More messages" }));
  field.focus();
  send(page([buildHit(3)]));

  expect(await screen.findByText("3 messages found.")).toBeInTheDocument();
  expect(field).toHaveFocus();
  field.remove();
});

test("that nothing says it is told", async () => {
  show(() => page([]));

  expect(await screen.findByText("No matching messages.")).toBeVisible();
});

test("a refusal is told in its words, and the search can be made again", async () => {
  const answers = [refuse(422, "You already have 10 open searches."), page([buildHit(1)])];
  show(() => answers.shift() ?? page([]));

  expect(await screen.findByRole("alert")).toHaveTextContent("You already have 10 open searches.");
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));

  expect(await screen.findByRole("link")).toBeVisible();
  expect(screen.queryByRole("alert")).toBeNull();
});
