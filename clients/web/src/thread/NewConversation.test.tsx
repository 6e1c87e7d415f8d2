import { act, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test, vi } from "vitest";

import type { Accepted, Agent } from "../api";
import { buildAgent } from "../testing/builders";
import { problemResponse, renderInPage } from "../testing/harness";
import type { Answer, Page } from "../testing/harness";
import { NewConversation } from "./NewConversation";

const ACCEPTED: Accepted = { conversation_id: "conv_1", turn_id: "turn_1", receipt: { state: "queued" }, events_url: "/" };
const GONE = { type: "urn:everturn:problem:unknown-bundle", title: "Unknown bundle", status: 422, detail: "There is no bundle support." };
const everturn = buildAgent({ id: "everturn", title: "Everturn", is_default: true, starters: ["What can you do?"] });
const support = buildAgent({ description: "Answers questions about orders.", starters: ["Where is my order?", "Write a reply to:"] });
const KEPT = "everturn.agent.default/default";

beforeEach(() => {
  localStorage.clear();
  sessionStorage.clear();
});

interface Server {
  agents?: readonly Agent[];
  list?: () => Answer | Promise<Answer>;
  message?: () => Answer;
}

function show({ agents = [everturn, support], list = () => ({ status: 200, body: { bundles: agents } }), message = () => ({ status: 202, body: ACCEPTED }) }: Server = {}): Page {
  return renderInPage(<NewConversation onCreated={vi.fn()} />, ({ path }) => (path.startsWith("/bundles/") ? list() : message()));
}

function sent({ requests }: Page): unknown[] {
  return requests.filter(({ method }) => method === "POST").map(({ body }) => {
    const { text, bundle_id: bundleId } = body as { text: string; bundle_id?: string };
    return [text, bundleId];
  });
}

const field = (): HTMLElement => screen.getByLabelText("Your message");

test("with one agent there are its title, description and starters, but no choice", async () => {
  const page = show({ agents: [{ ...support, icon: "🛟", is_default: true, problems: ["mcp.crm: It does not answer."] }] });

  await userEvent.click(await screen.findByRole("button", { name: "Where is my order?" }));

  expect(screen.getByRole("heading", { level: 1, name: "Support" })).toHaveTextContent("🛟");
  expect(screen.getByText("Answers questions about orders. Problem: mcp.crm: It does not answer.")).toBeVisible();
  expect(screen.getByPlaceholderText("Ask \u2068Support\u2069…")).toBeVisible();
  expect(screen.queryByRole("radiogroup")).toBeNull();
  await waitFor(() => { expect(sent(page)).toEqual([["Where is my order?", undefined]]); });
});

test("the default agent is chosen first, and the chosen one is asked and kept", async () => {
  const page = show();
  expect(await screen.findByRole("radio", { name: "Everturn" })).toBeChecked();
  expect(screen.getByRole("radio", { name: "Support" })).toHaveAccessibleDescription("Answers questions about orders.");

  await userEvent.click(screen.getByRole("radio", { name: "Support" }));
  await userEvent.type(field(), "Hello{Enter}");

  await waitFor(() => { expect(sent(page)).toEqual([["Hello", "support"]]); });
  expect(localStorage.getItem(KEPT)).toBe("support");
});

test("arrow keys choose, and the starters follow", async () => {
  show();
  const first = await screen.findByRole("radio", { name: "Everturn" });
  expect(screen.getByRole("list", { name: "Suggested messages" })).toHaveTextContent("What can you do?");

  act(() => { first.focus(); });
  await userEvent.keyboard("{ArrowDown}");

  expect(screen.getByRole("radio", { name: "Support" })).toBeChecked();
  expect(screen.getByRole("radio", { name: "Support" })).toHaveFocus();
  expect(screen.getByRole("list", { name: "Suggested messages" })).toHaveTextContent("Where is my order?");
});

test("a kept choice is used only while its agent is listed", async () => {
  localStorage.setItem(KEPT, "support");
  const first = show();
  expect(await screen.findByRole("radio", { name: "Support" })).toBeChecked();
  first.unmount();

  show({ agents: [everturn, buildAgent({ id: "legal", title: "Legal" })] });

  expect(await screen.findByRole("radio", { name: "Everturn" })).toBeChecked();
});

test("a starter does not replace or send a draft, and an incomplete one is not sent", async () => {
  const page = show({ agents: [support] });
  await userEvent.click(await screen.findByRole("button", { name: "Write a reply to:" }));
  expect(field()).toHaveValue("Write a reply to: ");
  expect(field()).toHaveFocus();

  await userEvent.click(screen.getByRole("button", { name: "Where is my order?" }));

  expect(field()).toHaveValue("Write a reply to:\n\nWhere is my order?");
  expect(sent(page)).toEqual([]);
});

test("a starter that was not accepted stays in the field", async () => {
  show({ message: () => problemResponse(429, "Too many messages.") });

  await userEvent.click(await screen.findByRole("button", { name: "What can you do?" }));

  expect(await screen.findByRole("alert")).toHaveTextContent("Too many messages.");
  expect(field()).toHaveValue("What can you do?");
});

test("a message can be sent while the list is slow, to the default agent", async () => {
  localStorage.setItem(KEPT, "support");
  const page = show({ list: () => new Promise<Answer>(() => undefined) });

  await userEvent.type(field(), "Hello{Enter}");

  await waitFor(() => { expect(sent(page)).toEqual([["Hello", undefined]]); });
});

test("a list that failed is loaded again without a word", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  try {
    let isUp = false;
    show({ list: () => (isUp ? { status: 200, body: { bundles: [everturn, support] } } : problemResponse(404, "Not found.")) });
    await act(() => vi.advanceTimersByTimeAsync(1_000));
    expect([screen.queryByRole("alert"), screen.queryByRole("radio")]).toEqual([null, null]);

    isUp = true;
    await act(() => vi.advanceTimersByTimeAsync(15_000));

    expect(await screen.findByRole("radio", { name: "Support" })).toBeVisible();
  } finally {
    vi.useRealTimers();
  }
});

test("an agent that is gone when the message arrives leaves the list, and the message stays", async () => {
  localStorage.setItem(KEPT, "support");
  const legal = buildAgent({ id: "legal", title: "Legal" });
  let second = support;
  const page = show({
    list: () => ({ status: 200, body: { bundles: [everturn, second] } }),
    message: () => {
      if (second === legal) return { status: 202, body: ACCEPTED };
      second = legal;
      return { status: 422, body: GONE };
    },
  });
  await screen.findByRole("radio", { name: "Support" });
  await userEvent.type(field(), "Hello{Enter}");

  expect(await screen.findByRole("alert")).toHaveTextContent("This agent is no longer available, and your message was not sent.");
  await waitFor(() => { expect(screen.getByRole("radio", { name: "Everturn" })).toBeChecked(); });
  expect(field()).toHaveValue("Hello");
  await userEvent.type(field(), "{Enter}");

  await waitFor(() => { expect(sent(page)).toEqual([["Hello", "support"], ["Hello", undefined]]); });
  const keys = page.requests.filter(({ method }) => method === "POST").map(({ key }) => key);
  expect(keys[1]).not.toBe(keys[0]);
  expect(screen.queryByRole("alert")).toBeNull();
});

test("more than eight agents can be searched, and Enter chooses the first", async () => {
  const others = Array.from({ length: 200 }, (_, at) => buildAgent({ id: `agent-${at}`, title: `Agent ${at}` }));
  show({ agents: [everturn, ...others] });
  const search = await screen.findByRole("searchbox", { name: "Search agents" });

  await userEvent.type(search, "agent 17");
  expect(screen.getAllByRole("radio")).toHaveLength(12);
  expect(screen.getByText("12 agents")).toHaveAttribute("role", "status");
  await userEvent.keyboard("{Enter}");

  expect(screen.getByRole("radio", { name: "Agent 17" })).toBeChecked();
  expect(search).toHaveValue("");
  expect(field()).toHaveFocus();
  await userEvent.type(search, "none of these");
  expect(screen.getByText("No matching agents.")).toBeVisible();
});

test("eight agents need no search", async () => {
  show({ agents: Array.from({ length: 8 }, (_, at) => buildAgent({ id: `agent-${at}`, title: `Agent ${at}` })) });

  expect(await screen.findAllByRole("radio")).toHaveLength(8);
  expect(screen.queryByRole("searchbox")).toBeNull();
});

test("operators see which agents can't run, or not wholly, and why", async () => {
  const broken = buildAgent({ id: "broken", title: "Broken", is_ready: false, error: "bundle.toml, line 3: titel is unknown." });
  const older = buildAgent({ id: "older", title: "Older", error: "instructions.md is too long." });
  const partial = buildAgent({ id: "partial", title: "Partial", description: "Keeps notes.", problems: ["mcp.notes: The server does not answer."] });
  show({ agents: [everturn, broken, older, partial] });

  const choice = await screen.findByRole("radio", { name: "Broken" });
  expect(choice).toBeDisabled();
  expect(choice).toHaveAccessibleDescription("It can’t run: bundle.toml, line 3: titel is unknown.");
  expect(screen.getByRole("radio", { name: "Older" })).toHaveAccessibleDescription("The previous version is in use. The newest one has an error: instructions.md is too long.");
  expect(screen.getByRole("radio", { name: "Partial" })).toHaveAccessibleDescription("Keeps notes. Problem: mcp.notes: The server does not answer.");
});

test("hostile titles, descriptions and starters are only text", async () => {
  const markup = "<img src=x onerror=alert(1)>";
  show({ agents: [everturn, buildAgent({ title: `${markup}\u202egnp`, description: markup, icon: markup, starters: [`${markup}\u202egnp`] })] });

  await userEvent.click(await screen.findByRole("radio", { name: `${markup}\\u{202e}gnp` }));

  expect(within(screen.getByRole("list", { name: "Suggested messages" })).getByRole("button")).toHaveTextContent(`${markup}\\u{202e}gnp`);
  expect(document.querySelector("img")).toBeNull();
});
