import { act, fireEvent, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";

import { TurnActionsContext } from "../turn/actions";
import type { TurnActions } from "../turn/actions";
import { problemResponse, renderInPage } from "../testing/harness";
import type { Answer, Page, RecordedRequest } from "../testing/harness";
import WidgetPanel from "./WidgetPanel";

const URL = "/widgets/evw_1/index.html";

function openPanel(answer: (request: RecordedRequest) => Answer = () => ({ status: 200, body: { url: URL, expires_at: "" } })): Page & { sent: string[] } {
  const sent: string[] = [];
  const actions = { send: (text: string) => { sent.push(text); } } as TurnActions;
  const panel = <WidgetPanel agentId="support" widget={{ name: "board", title: "Tickets" }} conversationId="conv_1" turns={[]} onClose={vi.fn()} />;
  return { ...renderInPage(<TurnActionsContext value={actions}>{panel}</TurnActionsContext>, answer), sent };
}

async function findFrame(): Promise<HTMLIFrameElement> {
  return screen.findByTitle("Tickets");
}

function say(message: unknown, from: Partial<MessageEventInit>): void {
  act(() => { window.dispatchEvent(new MessageEvent("message", { data: JSON.stringify(message), origin: "null", ...from })); });
}

test("the frame has scripts and nothing else, and the address of the widget", async () => {
  const { requests } = openPanel();
  const frame = await findFrame();

  expect(frame).toHaveAttribute("sandbox", "allow-scripts");
  expect(frame).toHaveAttribute("allow", "");
  expect(frame).toHaveAttribute("src", URL);
  expect(requests.map(({ path }) => path)).toEqual(["/bundles/default/default/support/widgets/board"]);
});

test("a message of the widget is sent once the person has seen it and said so", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  const { sent } = openPanel();
  const source = (await findFrame()).contentWindow;
  say({ everturn: "message", id: 1, text: "Close \u202eticket 7" }, { source });
  const button = screen.getByRole("button", { name: "Send this message" });
  expect(button).toBeDisabled();
  expect(document.activeElement).not.toBe(button);
  fireEvent.click(button);
  expect(sent).toEqual([]);

  act(() => { vi.advanceTimersByTime(1_000); });
  fireEvent.click(button);
  vi.useRealTimers();

  expect(sent).toEqual(["Close \u202eticket 7"]);
  expect(screen.queryByRole("button", { name: "Send this message" })).toBeNull();
});

test("only the page in the frame is heard, and only without an origin", async () => {
  openPanel();
  const source = (await findFrame()).contentWindow;
  const message = { everturn: "message", id: 1, text: "Close ticket 7" };
  say(message, { source: window });
  say(message, { source: null });
  say(message, { source, origin: "https://evil.example" });

  expect(screen.queryByText("Close ticket 7")).toBeNull();
});

test("a stopped widget is removed and can be started again with a new address", async () => {
  const { requests } = openPanel();
  const source = (await findFrame()).contentWindow;
  say("x".repeat(70_000), { source });

  expect(screen.getByRole("alert")).toHaveTextContent("The widget was stopped. It sent a message of more than 65,536 characters.");
  expect(screen.queryByTitle("Tickets")).toBeNull();
  fireEvent.click(screen.getByRole("button", { name: "Restart the widget" }));
  await findFrame();

  expect(requests).toHaveLength(2);
});

test("a widget that can’t be loaded says why", async () => {
  openPanel(() => problemResponse(404, "This bundle has no widget of this name."));

  expect(await screen.findByRole("alert")).toHaveTextContent("This bundle has no widget of this name.");
});
