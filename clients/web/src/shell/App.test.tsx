import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test, vi } from "vitest";

import { buildAgent } from "../testing/builders";
import { LIMITS } from "../testing/harness";
import { App } from "./App";

const AGENTS = [buildAgent({ id: "everturn", title: "Everturn", is_default: true }), buildAgent({ title: "Support", icon: "🛟" })];

/** A server with one key and one conversation. */
const answer = (address: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
  const isKnown = new Headers(init?.headers).get("authorization") === "Bearer evk_good";
  const problem = { type: "urn:everturn:problem:unauthorized", title: "Unauthorized", status: 401, detail: "No credential." };
  const item = { conversation_id: "conv_1", title: "Sales", state: "waiting", archived: false, created_at: "", last_activity_at: "2026-03-01T10:00:00Z" };
  if (typeof address === "string" && address.startsWith("/limits/") && isKnown) return Promise.resolve(Response.json(LIMITS));
  if (typeof address === "string" && address.startsWith("/bundles/") && isKnown) return Promise.resolve(Response.json({ bundles: AGENTS }));
  const isSearch = typeof address === "string" && address.endsWith("/search");
  const body = isKnown ? { items: isSearch ? [] : [item], next_cursor: null } : problem;
  return Promise.resolve(new Response(JSON.stringify(body), { status: isKnown ? 200 : 401, headers: { "content-type": "application/json" } }));
};

beforeEach(() => {
  localStorage.clear();
  sessionStorage.clear();
  window.location.hash = "";
  vi.stubGlobal("fetch", answer);
});

test("a pasted credential is sent to a server that requires one", async () => {
  render(<App />);

  await userEvent.click(await screen.findByLabelText("Token or API key"));
  await userEvent.paste("evk_good");
  await userEvent.click(screen.getByRole("button", { name: "Sign in" }));

  expect(await screen.findByRole("heading", { level: 1 })).toHaveTextContent("What would you like to work on?");
  expect(screen.getByRole("button", { name: "Sign out" })).toBeVisible();
  expect(sessionStorage.getItem("everturn.credential.default/default")).toBe("evk_good");
});

test("a rejected credential is reported and can be corrected", async () => {
  render(<App />);
  const field = await screen.findByLabelText("Token or API key");
  expect(screen.queryByRole("alert")).toBeNull();

  await userEvent.click(field);
  await userEvent.paste("wrong");
  await userEvent.click(screen.getByRole("button", { name: "Sign in" }));

  expect(await screen.findByRole("alert")).toHaveTextContent("was not accepted");
  expect(field).toHaveValue("wrong");
});

test("a credential that is no longer accepted is reported as expired", async () => {
  sessionStorage.setItem("everturn.credential.default/default", "evk_worn_out");
  render(<App />);

  expect(await screen.findByRole("alert")).toHaveTextContent("no longer accepted");
});

test("signing out removes the credential and shows the sign-in page", async () => {
  sessionStorage.setItem("everturn.credential.default/default", "evk_good");
  render(<App />);

  await userEvent.click(await screen.findByRole("button", { name: "Sign out" }));

  expect(await screen.findByLabelText("Token or API key")).toBeVisible();
  expect(sessionStorage.getItem("everturn.credential.default/default")).toBeNull();
});

test("switching conversations keeps the rest of the page, in every tenant", async () => {
  sessionStorage.setItem("everturn.credential.acme/one", "evk_good");
  window.location.hash = "#/acme/one";
  render(<App />);
  const search = await screen.findByLabelText("Search conversations");
  await userEvent.type(search, "sal");

  window.location.hash = "#/acme/one/conv_1";
  await screen.findByRole("heading", { level: 1, name: "New conversation" });

  expect(screen.getByLabelText("Search conversations")).toBe(search);
  expect(search).toHaveValue("sal");
});

test("a missing conversation is reported and has no message field", async () => {
  sessionStorage.setItem("everturn.credential.default/default", "evk_good");
  const missing = { type: "urn:everturn:problem:not-found", title: "Not found", status: 404, detail: "" };
  vi.stubGlobal("fetch", (address: RequestInfo | URL, init?: RequestInit) =>
    typeof address === "string" && address.includes("conv_gone")
      ? Promise.resolve(new Response(JSON.stringify(missing), { status: 404, headers: { "content-type": "application/problem+json" } }))
      : answer(address, init));
  window.location.hash = "#/conv_gone";
  render(<App />);

  await screen.findByRole("heading", { level: 1, name: "Conversation not found" });
  expect(screen.queryByLabelText("Your message")).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "Start a new conversation" }));
  expect(await screen.findByLabelText("Your message")).toBeVisible();
});

test("a new conversation does not open if the user has moved on meanwhile", async () => {
  sessionStorage.setItem("everturn.credential.default/default", "evk_good");
  const way: ((response: Response) => void)[] = [];
  const accepted = { conversation_id: "conv_2", turn_id: "turn_1", receipt: { state: "queued" }, events_url: "/" };
  vi.stubGlobal("fetch", (address: RequestInfo | URL, init?: RequestInit) =>
    init?.method === "POST" ? new Promise((resolve) => { way.push(resolve); }) : answer(address, init));
  render(<App />);
  await userEvent.type(await screen.findByLabelText("Your message"), "hello{Enter}");

  window.location.hash = "#/conv_1";
  await screen.findByRole("heading", { level: 1, name: "New conversation" });
  way[0]?.(new Response(JSON.stringify(accepted), { status: 202, headers: { "content-type": "application/json" } }));
  await waitFor(() => { expect(JSON.stringify(sessionStorage)).not.toContain("hello"); });

  expect(window.location.hash).toBe("#/conv_1");
});

test("a message to an agent that is gone moves to a new conversation", async () => {
  sessionStorage.setItem("everturn.credential.default/default", "evk_good");
  const gone = { type: "urn:everturn:problem:unknown-bundle", title: "Unknown bundle", status: 422, detail: "There is no bundle legal." };
  vi.stubGlobal("fetch", (address: RequestInfo | URL, init?: RequestInit) => {
    if (typeof address !== "string" || !address.endsWith("/conv_1/messages")) return answer(address, init);
    return Promise.resolve(new Response(JSON.stringify(gone), { status: 422, headers: { "content-type": "application/problem+json" } }));
  });
  window.location.hash = "#/conv_1";
  render(<App />);
  await userEvent.type(await screen.findByLabelText("Your message"), "Is this allowed?{Enter}");

  expect(await screen.findByRole("alert")).toHaveTextContent("The agent of this conversation is no longer available.");
  await userEvent.upload(screen.getByLabelText("Files to attach"), new File(["a,b"], "data.csv"));
  await userEvent.click(screen.getByRole("button", { name: "Move the message to a new conversation" }));

  expect(await screen.findByRole("radio", { name: "Everturn" })).toBeChecked();
  expect(screen.getByLabelText("Your message")).toHaveValue("Is this allowed?");
  expect(screen.getByRole("list", { name: "Files to send" })).toHaveTextContent("data.csv");
  window.location.hash = "#/conv_1";
  await waitFor(() => { expect(screen.getByLabelText("Your message")).toHaveValue(""); });
});

test("\"New conversation\" focuses the message field", async () => {
  sessionStorage.setItem("everturn.credential.default/default", "evk_good");
  render(<App />);
  const field = await screen.findByLabelText("Your message");
  await userEvent.type(screen.getByLabelText("Search conversations"), "sal");

  await userEvent.click(screen.getByRole("button", { name: "New conversation" }));

  expect(field).toHaveFocus();
});

test("attached files survive a new sign-in and a visit to another conversation", async () => {
  sessionStorage.setItem("everturn.credential.default/default", "evk_good");
  let isTaken = true;
  vi.stubGlobal("fetch", (address: RequestInfo | URL, init?: RequestInit) => answer(address, isTaken ? init : {}));
  render(<App />);
  await userEvent.upload(await screen.findByLabelText("Files to attach"), new File(["a,b"], "data.csv"));
  const signIn = async (): Promise<void> => {
    await userEvent.click(await screen.findByLabelText("Token or API key"));
    isTaken = true;
    await userEvent.paste("evk_good");
    await userEvent.click(screen.getByRole("button", { name: "Sign in" }));
    await screen.findByLabelText("Your message");
  };

  isTaken = false;
  await userEvent.type(screen.getByLabelText("Search conversations"), "x");
  await signIn();
  expect(screen.getByRole("list", { name: "Files to send" })).toHaveTextContent("data.csv");
  window.location.hash = "#/conv_1";
  await waitFor(() => { expect(screen.queryByRole("list", { name: "Files to send" })).toBeNull(); });
  window.location.hash = "";
  expect(await screen.findByRole("list", { name: "Files to send" })).toHaveTextContent("data.csv");
  await userEvent.click(screen.getByRole("button", { name: "Sign out" }));
  await signIn();

  expect(screen.queryByRole("list", { name: "Files to send" })).toBeNull();
});

test("signing out removes unsent text", async () => {
  sessionStorage.setItem("everturn.credential.default/default", "evk_good");
  render(<App />);
  await userEvent.type(await screen.findByLabelText("Your message"), "between us");

  await userEvent.click(screen.getByRole("button", { name: "Sign out" }));
  await screen.findByLabelText("Token or API key");

  expect(JSON.stringify(sessionStorage)).not.toContain("between us");
});
