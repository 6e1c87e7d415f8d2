import { render, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";

import { ProblemError } from "../api";
import { LIMITS } from "../testing/harness";
import { buildAgent } from "../testing/builders";
import { EmbeddedApp } from "./EmbeddedApp";
import { openEmbedded, readTicket } from "./embedding";

const EMBEDDING = { token: "evs_1", tenant: "acme", project: "one", bundle_id: "support" };

test.each([
  ["/embed/support", "?ticket=eve_1", "eve_1"],
  ["/prefix/embed/support", "?ticket=eve_1", "eve_1"],
  ["/embed/support", "", ""],
  ["/", "?ticket=eve_1", null],
  ["/embed/", "?ticket=eve_1", null],
])("the address %s%s has the ticket %j", (pathname, search, ticket) => {
  expect(readTicket({ pathname, search })).toBe(ticket);
});

test("the ticket is sent as a credential, with the pages around the frame", async () => {
  const request = vi.fn<typeof fetch>(() => Promise.resolve(Response.json(EMBEDDING)));

  expect(await openEmbedded("eve_1", ["https://shop.example"], request)).toEqual(EMBEDDING);
  const [address, init] = request.mock.calls[0] ?? [];
  expect(address).toBe("/embed/session");
  expect(init).toMatchObject({ method: "POST", credentials: "omit", body: '{"ancestors":["https://shop.example"]}' });
  expect(new Headers(init?.headers).get("authorization")).toBe("Bearer eve_1");
});

test("the chat begins with its agent, and offers no other", async () => {
  const agents = [buildAgent({ id: "default", title: "Everturn", is_default: true }), buildAgent({ description: "Answers questions about orders.", starters: ["Where is my order?"] })];
  vi.stubGlobal("fetch", (address: string) => Promise.resolve(Response.json(address.startsWith("/limits/") ? LIMITS : { bundles: agents })));
  render(<EmbeddedApp opening={Promise.resolve(EMBEDDING)} />);

  expect(await screen.findByRole("button", { name: "Where is my order?" })).toBeVisible();
  expect(screen.getByRole("heading", { level: 1, name: "Support" })).toBeVisible();
  expect(screen.getByText("Answers questions about orders.")).toBeVisible();
  expect(screen.queryByRole("radio")).toBeNull();
  expect(screen.queryByText("New")).toBeNull();
});

test("a ticket that opens nothing is explained", async () => {
  const problem = { type: "urn:everturn:problem:unauthorized", title: "No", status: 401, detail: "The ticket for this chat was used already. Load the page again." };
  render(<EmbeddedApp opening={Promise.reject(new ProblemError(problem))} />);

  expect(await screen.findByRole("alert")).toHaveTextContent("Load the page again.");
});
