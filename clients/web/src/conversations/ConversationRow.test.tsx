import { screen, waitFor } from "@testing-library/react";
import { expect, test, vi } from "vitest";

import type { ConversationView } from "../api";
import { buildTurn } from "../testing/builders";
import { refuse, renderInPage } from "../testing/harness";
import type { Answer, Page } from "../testing/harness";
import { ConversationRow } from "./ConversationRow";

const NOW = Date.parse("2026-03-01T10:00:00Z");
const AT = "2026-03-01T10:00:00Z";

function show(title: string, answer: () => Answer, state: ConversationView["state"] = "waiting"): Page {
  const conversation: ConversationView = { conversation_id: "conv_1", title, state, archived: false, created_at: AT, last_activity_at: AT };
  return renderInPage(<ConversationRow conversation={conversation} isSelected={false} now={NOW} onSelect={vi.fn()} onChanged={vi.fn()} />, answer);
}

test("a conversation without a title is called by its first words, whoever sent them", async () => {
  const { asked } = show("", () => ({ status: 200, body: { conversation: {}, turns: [buildTurn({ text: "Compare\nthe north" })], cursor: "1-1" } }));

  expect(await screen.findByRole("link", { name: /^Compare the north/ })).toHaveTextContent("needs approval");
  expect(screen.getByRole("button", { name: "Actions for Compare the north" })).toBeVisible();
  expect(asked).toMatchObject([{ method: "POST", path: "/fetch", body: { conversation_id: "conv_1" } }]);
});

test("a conversation with a title is called by it, and nothing is read", () => {
  const { asked } = show("Sales", () => refuse(500, "Not asked."));

  expect(screen.getByRole("link", { name: /^Sales/ })).toBeVisible();
  expect(asked).toEqual([]);
});

test("a conversation in which nothing was said yet is not asked for its first words", () => {
  const { asked } = show("", () => refuse(500, "Not asked."), "idle");

  expect(screen.getByRole("link", { name: /^New conversation/ })).toBeVisible();
  expect(asked).toEqual([]);
});

test("a conversation whose first words can't be read has a name all the same", async () => {
  const { asked } = show("", () => refuse(404, "It is gone."));

  await waitFor(() => { expect(asked).toHaveLength(1); });
  expect(await screen.findByRole("link", { name: /^New conversation/ })).toBeVisible();
});
