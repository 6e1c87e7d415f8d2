import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";

import type { Answer, RecordedRequest } from "../testing/harness";
import { problemResponse, renderInPage } from "../testing/harness";
import { ConnectionsDialog } from "./ConnectionsDialog";

const BASE = "/mcp-connections/default/default";
const MAIL = { bundle_id: "desk", server: "mail", title: "Example Mail", connected_at: "2026-03-01T12:00:00.000Z" };
const CRM = { ...MAIL, server: "crm", title: "Customers" };

function show(answer: (request: RecordedRequest) => Answer): { requests: RecordedRequest[] } {
  return renderInPage(<ConnectionsDialog onClose={() => undefined} returnTo={() => null} />, answer);
}

test("an account is disconnected and leaves the list", async () => {
  let items = [MAIL, CRM];
  const { requests } = show(({ method }) => {
    if (method === "DELETE") items = [CRM];
    return { status: 200, body: method === "DELETE" ? { deleted: 1 } : { items } };
  });
  await userEvent.click(await screen.findByRole("button", { name: "Disconnect Example Mail" }));

  await waitFor(() => { expect(screen.queryByText("Example Mail")).toBeNull(); });
  expect(screen.getByText("Customers")).toBeInTheDocument();
  expect(requests.map(({ method, path }) => `${method} ${path}`)).toContain(`DELETE ${BASE}/desk/mail`);
});

test("without accounts the dialog says when agents ask", async () => {
  show(() => ({ status: 200, body: { items: [] } }));
  expect(await screen.findByText(/No accounts yet/)).toBeInTheDocument();
});

test("a failure is explained and the account stays", async () => {
  show(({ method }) => (method === "DELETE" ? problemResponse(503, "The database does not respond.") : { status: 200, body: { items: [MAIL] } }));
  await userEvent.click(await screen.findByRole("button", { name: "Disconnect Example Mail" }));

  expect(await screen.findByRole("alert")).toHaveTextContent("The database does not respond.");
  expect(screen.getByText("Example Mail")).toBeInTheDocument();
});
