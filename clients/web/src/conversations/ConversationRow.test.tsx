import { screen, waitFor } from "@testing-library/react";
import { expect, test, vi } from "vitest";

import type { ConversationView } from "../api";
import { buildConversation, buildTurn } from "../testing/builders";
import { problemResponse, renderInPage } from "../testing/harness";
import type { Answer, Page } from "../testing/harness";
import { ConversationRow } from "./ConversationRow";

const NOW = Date.parse("2026-03-01T10:00:00Z");
const AT = "2026-03-01T10:00:00Z";

function show(title: string, answer: () => Answer, state: ConversationView["state"] = "waiting"): Page {
  const conversation = buildConversation({ title, state, created_at: AT, last_activity_at: AT });
  return renderInPage(<ConversationRow conversation={conversation} isSelected={false} now={NOW} onSelect={vi.fn()} onChanged={vi.fn()} />, answer);
}

test("a conversation without a title is named by its first words", async () => {
  const { requests } = show("", () => ({ status: 200, body: { conversation: {}, turns: [buildTurn({ text: "Compare\nthe north" })], cursor: "1-1" } }));

  expect(await screen.findByRole("link", { name: /^Compare the north/ })).toHaveTextContent("needs approval");
  expect(screen.getByRole("button", { name: "Actions for Compare the north" })).toBeVisible();
  expect(requests).toMatchObject([{ method: "POST", path: "/fetch", body: { conversation_id: "conv_1" } }]);
});

test("a conversation with a title needs no request for its name", () => {
  const { requests } = show("Sales", () => problemResponse(500, "Not requests."));

  expect(screen.getByRole("link", { name: /^Sales/ })).toBeVisible();
  expect(requests).toEqual([]);
});

test("an empty conversation is not queried for its first words", () => {
  const { requests } = show("", () => problemResponse(500, "Not requests."), "idle");

  expect(screen.getByRole("link", { name: /^New conversation/ })).toBeVisible();
  expect(requests).toEqual([]);
});

test("a conversation whose first words cannot be read has a default name", async () => {
  const { requests } = show("", () => problemResponse(404, "It is gone."));

  await waitFor(() => { expect(requests).toHaveLength(1); });
  expect(await screen.findByRole("link", { name: /^New conversation/ })).toBeVisible();
});
