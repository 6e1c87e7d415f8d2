import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";

import type { Answer, RecordedRequest } from "../testing/harness";
import { problemResponse, renderInPage } from "../testing/harness";
import { CollectionsDialog } from "./CollectionsDialog";

const BASE = "/collections/default/default";
const CONTRACTS = { id: "coll_1", title: "Contracts", scope: "user", is_mine: true, created_at: "", documents: 2, waiting: 1 };
const SHARED = { ...CONTRACTS, id: "coll_2", title: "Handbook", scope: "project", is_mine: false, documents: 1, waiting: 0 };
const DOCUMENTS = [
  { id: "art_1", name: "lease.pdf", media_type: "application/pdf", size: 182_044, added_at: "", state: "waiting" },
  { id: "art_2", name: "scan.pdf", media_type: "application/pdf", size: 1, added_at: "", state: "failed", error: "The PDF is damaged." },
];

function show(answer: (request: RecordedRequest) => Answer): { requests: RecordedRequest[] } {
  return renderInPage(<CollectionsDialog onClose={() => undefined} returnTo={() => null} />, answer);
}

function serve({ method, path }: RecordedRequest): Answer {
  if (method === "GET" && path === BASE) return { status: 200, body: { collections: [CONTRACTS, SHARED] } };
  if (method === "GET") return { status: 200, body: { documents: DOCUMENTS } };
  return { status: 200, body: { documents: 1 } };
}

test("collections are listed with what is in them and who shares them", async () => {
  show(serve);

  expect(await screen.findByRole("button", { name: /Contracts/ })).toHaveTextContent("2 documents, 1 being indexed");
  expect(screen.getByRole("button", { name: /Handbook/ })).toHaveTextContent("1 document, shared by others");
});

test("a collection shows its documents, and its owner deletes one", async () => {
  const { requests } = show(serve);
  await userEvent.click(await screen.findByRole("button", { name: /Contracts/ }));

  const rows = within(await screen.findByRole("list", { name: "Documents" }));
  expect(await rows.findByText("182 kB, being indexed")).toBeInTheDocument();
  expect(rows.getByText("The PDF is damaged.")).toBeInTheDocument();
  await userEvent.click(rows.getByRole("button", { name: "Delete lease.pdf" }));

  await waitFor(() => { expect(requests.map(({ method, path }) => `${method} ${path}`)).toContain(`DELETE ${BASE}/coll_1/documents/art_1`); });
});

test("others can't change a shared collection", async () => {
  show(serve);
  await userEvent.click(await screen.findByRole("button", { name: /Handbook/ }));
  await screen.findByText("lease.pdf");

  expect(screen.queryByRole("button", { name: /Delete|Add files/ })).toBeNull();
});

test("a collection is deleted after a second click", async () => {
  const { requests } = show(serve);
  await userEvent.click(await screen.findByRole("button", { name: /Contracts/ }));
  await userEvent.click(await screen.findByRole("button", { name: "Delete collection" }));
  expect(requests.some(({ method }) => method === "DELETE")).toBe(false);

  await userEvent.click(screen.getByRole("button", { name: "Delete it and all its documents" }));

  expect(await screen.findByRole("button", { name: /Handbook/ })).toBeInTheDocument();
  expect(requests.map(({ method, path }) => `${method} ${path}`)).toContain(`DELETE ${BASE}/coll_1`);
});

test("a refused title is explained", async () => {
  show((request) => (request.method === "POST" ? problemResponse(409, "You have 20 collections already, which is the limit.") : serve(request)));
  await userEvent.type(await screen.findByLabelText("New collection"), "Recipes");
  await userEvent.click(screen.getByRole("button", { name: "Create" }));

  expect(await screen.findByRole("alert")).toHaveTextContent("You have 20 collections already");
});
