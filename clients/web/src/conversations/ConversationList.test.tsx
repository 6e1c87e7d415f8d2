import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test, vi } from "vitest";

import { renderInPage } from "../testing/harness";
import type { RecordedRequest, Page } from "../testing/harness";
import { ConversationList } from "./ConversationList";

const HIT = { conversation_id: "conv_1", turn_id: "turn_1", title: "Ports", target: "assistant", ref: "ar:1", snippet: "The harbour.", ts: "2026-03-01T10:00:00Z", score: 1 };
const onSelect = vi.fn();

beforeEach(() => {
  vi.stubGlobal("ResizeObserver", class { observe(): void { /* no sizes here */ } unobserve(): void { /* nor here */ } disconnect(): void { /* nor here */ } });
});

function show(selected: string | null): Page {
  return renderInPage(<ConversationList selected={selected} onSelect={onSelect} onChanged={vi.fn()} />, ({ path }) => (
    { status: 200, body: path === "/search" ? { items: [HIT], mode: "lexical", next_cursor: null } : { items: [], next_cursor: null } }
  ));
}

function findPlaces(requests: readonly RecordedRequest[]): unknown[] {
  return requests.filter(({ path }) => path === "/search").map(({ body }) => (body as { conversation_id?: string }).conversation_id);
}

test("a search can be limited to the open chat by keyboard, and its results open there", async () => {
  const { requests } = show("conv_1");
  expect(screen.queryByRole("group", { name: "Where to search" })).toBeNull();

  await userEvent.type(screen.getByRole("searchbox", { name: "Search conversations" }), "harbour");
  expect(screen.getByRole("group", { name: "Where to search" })).toBeVisible();
  expect(screen.getByRole("button", { name: "All conversations", pressed: true })).toBeVisible();
  await waitFor(() => { expect(findPlaces(requests)).toEqual([undefined]); });
  await userEvent.tab();
  await userEvent.tab();
  expect(screen.getByRole("button", { name: "This conversation", pressed: false })).toHaveFocus();
  await userEvent.keyboard(" ");

  expect(await screen.findByRole("region", { name: "In this conversation" })).toBeVisible();
  await waitFor(() => { expect(findPlaces(requests)).toEqual([undefined, "conv_1"]); });
  expect(screen.queryByText("No matching titles.")).toBeNull();
  await userEvent.click(await screen.findByRole("link", { name: /harbour/ }));
  expect(onSelect).toHaveBeenCalledExactlyOnceWith("conv_1", "turn_1");
});

test("a new search covers all chats again, and further typing keeps the scope", async () => {
  show("conv_1");
  const field = screen.getByRole("searchbox");
  await userEvent.type(field, "har");
  await userEvent.click(screen.getByRole("button", { name: "This conversation" }));

  await userEvent.type(field, "bour");
  expect(screen.getByRole("button", { name: "This conversation", pressed: true })).toBeVisible();
  await userEvent.clear(field);
  await userEvent.type(field, "quay");

  expect(screen.getByRole("button", { name: "All conversations", pressed: true })).toBeVisible();
});

test("without an open chat there is no scope to choose", async () => {
  const { requests } = show(null);

  await userEvent.type(screen.getByRole("searchbox"), "harbour");

  await waitFor(() => { expect(findPlaces(requests)).toEqual([undefined]); });
  expect(screen.queryByRole("group", { name: "Where to search" })).toBeNull();
});
