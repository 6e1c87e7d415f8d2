import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import type { Accepted } from "../api";
import { problemResponse, renderInPage, touchScreen } from "../testing/harness";
import type { Answer, RecordedRequest, Page } from "../testing/harness";
import { Composer } from "./Composer";

const ACCEPTED: Accepted = { conversation_id: "conv_1", turn_id: "turn_1", receipt: { state: "queued" }, events_url: "/" };
const onAccepted = vi.fn();
const onStop = vi.fn();

beforeEach(() => {
  sessionStorage.clear();
  onAccepted.mockClear();
  onStop.mockClear();
});

afterEach(() => { vi.restoreAllMocks(); });

function show(isBusy: boolean, answer: (requests: RecordedRequest) => Answer | Promise<Answer> = () => ({ status: 202, body: ACCEPTED })): Page {
  return renderInPage(<Composer conversationId="conv_1" isBusy={isBusy} isStopping={false} onAccepted={onAccepted} onStop={onStop} />, answer);
}

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const REFUSED_ZONE = { type: "unprocessable", title: "Unprocessable", detail: "", status: 422, errors: [{ field: "body.time_zone", message: "is not a time zone" }] };

/** A server that cannot be reached. */
function lose(): Page["queries"] {
  return show(false, () => Promise.reject(new TypeError("Failed to fetch"))).queries;
}

test("Enter sends, Shift+Enter adds a line break", async () => {
  const { requests } = show(false);

  await userEvent.type(screen.getByLabelText("Your message"), "one{Shift>}{Enter}{/Shift}two{Enter}");

  expect(requests).toMatchObject([{ method: "POST", path: "/conv_1/messages", body: { text: "one\ntwo" } }]);
  await waitFor(() => { expect(screen.getByLabelText("Your message")).toHaveValue(""); });
  expect(onAccepted).toHaveBeenCalledOnce();
  expect(screen.getByLabelText("Your message")).toHaveFocus();
});

test("a time zone that the server does not know is left out", async () => {
  const { requests } = show(false, (call) => {
    const isKnown = !JSON.stringify(call.body).includes("time_zone");
    return isKnown ? { status: 202, body: ACCEPTED } : { status: 422, body: REFUSED_ZONE };
  });

  await userEvent.type(screen.getByLabelText("Your message"), "one{Enter}");

  await waitFor(() => { expect(onAccepted).toHaveBeenCalledOnce(); });
  expect(requests.map(({ body }) => body)).toEqual([{ text: "one", time_zone: ZONE }, { text: "one" }]);
});

test("nothing is sent when nothing is written", async () => {
  const { requests } = show(false);

  await userEvent.type(screen.getByLabelText("Your message"), "  {Enter}");

  expect(requests).toEqual([]);
  expect(screen.getByRole("button", { name: "Send" })).toBeDisabled();
});

test("a rejected message stays in the field, with the reason", async () => {
  show(false, () => problemResponse(422, "The text is too long."));

  await userEvent.type(screen.getByLabelText("Your message"), "hello{Enter}");

  expect(await screen.findByRole("alert")).toHaveTextContent("The text is too long.");
  expect(screen.getByLabelText("Your message")).toHaveValue("hello");
});

test("an unresponsive server is reported until it responds, and the text is kept", async () => {
  const queries = lose();

  await userEvent.type(screen.getByLabelText("Your message"), "hello{Enter}");
  expect(await screen.findByRole("alert")).toHaveTextContent("The server is not responding.");
  await queries.query({ queryKey: ["list"], queryFn: () => Promise.resolve([]) });

  await waitFor(() => { expect(screen.queryByRole("alert")).toBeNull(); });
  expect(screen.getByLabelText("Your message")).toHaveValue("hello");
});

test("a rejection stays visible when another request succeeds", async () => {
  const { queries } = show(false, () => problemResponse(422, "The text is too long."));

  await userEvent.type(screen.getByLabelText("Your message"), "hello{Enter}");
  await screen.findByRole("alert");
  await queries.query({ queryKey: ["list"], queryFn: () => Promise.resolve([]) });

  expect(screen.getByRole("alert")).toHaveTextContent("The text is too long.");
});

test("an offline user is informed", async () => {
  lose();
  vi.spyOn(navigator, "onLine", "get").mockReturnValue(false);

  await userEvent.type(screen.getByLabelText("Your message"), "hello{Enter}");

  expect(await screen.findByRole("alert")).toHaveTextContent("You are offline. Your text has not been lost.");
  expect(screen.getByLabelText("Your message")).toHaveValue("hello");
});

test("a repeated message has the same key, another one a new key", async () => {
  const { requests } = show(false, () => problemResponse(422, "Not now."));
  const field = screen.getByLabelText("Your message");

  await userEvent.type(field, "hello{Enter}");
  await screen.findByRole("alert");
  await userEvent.type(field, "{Enter}");
  await userEvent.type(field, "!{Enter}");

  const keys = requests.map(({ key }) => key);
  expect(keys[0]).not.toBeNull();
  expect(keys[1]).toBe(keys[0]);
  expect(keys[2]).not.toBe(keys[0]);
});

test("a message without a response keeps its key after a reload, until it is accepted", async () => {
  const lost = show(false, () => problemResponse(503, "No answer."));
  await userEvent.type(screen.getByLabelText("Your message"), "hello{Enter}");
  await screen.findByRole("alert");
  lost.unmount();

  const { requests } = show(false);
  await userEvent.type(screen.getByLabelText("Your message"), "{Enter}");
  await waitFor(() => { expect(screen.getByLabelText("Your message")).toHaveValue(""); });
  await userEvent.type(screen.getByLabelText("Your message"), "hello{Enter}");
  await waitFor(() => { expect(requests).toHaveLength(2); });

  expect(requests[0]?.key).toBe(lost.requests[0]?.key);
  expect(requests[1]?.key).not.toBe(requests[0]?.key);
});

test("while a turn runs, Enter adds to it, and another button redirects it", async () => {
  const { requests } = show(true);
  const field = screen.getByLabelText("Your message");

  await userEvent.type(field, "also this{Enter}");
  await userEvent.type(field, "rather that");
  await userEvent.click(screen.getByRole("button", { name: "Redirect" }));
  await userEvent.click(screen.getByRole("button", { name: "Stop" }));

  expect(requests.map(({ body }) => body)).toEqual([{ text: "also this", kind: "followup", time_zone: ZONE }, { text: "rather that", kind: "steer", time_zone: ZONE }]);
  expect(onStop).toHaveBeenCalledOnce();
});

test("a draft is restored after a reload", async () => {
  const { unmount } = show(false);
  await userEvent.type(screen.getByLabelText("Your message"), "half a tho");
  unmount();

  show(false);

  expect(screen.getByLabelText("Your message")).toHaveValue("half a tho");
});

test("a file is attached by picking and by pasting, and can be removed", async () => {
  show(false);
  const file = new File(["a,b"], "data.csv", { type: "text/csv" });

  await userEvent.upload(screen.getByLabelText("Files to attach"), file);
  await userEvent.click(screen.getByLabelText("Your message"));
  await userEvent.paste(clipboardOf(new File(["x"], "image.png", { type: "image/png" })));
  expect(screen.getAllByRole("listitem").map((item) => item.textContent)).toEqual(["data.csv3 bytes", "pasted-2.png1 byte"]);
  await userEvent.click(screen.getByRole("button", { name: "Remove data.csv" }));

  expect(screen.getAllByRole("listitem")).toHaveLength(1);
});

test("a file name shows the characters that would reverse it", async () => {
  show(false);

  await userEvent.upload(screen.getByLabelText("Files to attach"), [new File(["a,b"], "report\u202efdp.csv"), new File([], "empty\u202efdp.csv")]);

  expect(await screen.findByRole("listitem")).toHaveTextContent("report\\u{202e}fdp.csv");
  expect(screen.getByRole("button", { name: "Remove report\\u{202e}fdp.csv" })).toBeVisible();
  expect(screen.getByRole("alert")).toHaveTextContent("empty\\u{202e}fdp.csv is empty.");
});

test("a file pasted while the message is being sent belongs to the next one", async () => {
  const way: ((answer: Answer) => void)[] = [];
  show(false, () => new Promise((resolve) => { way.push(resolve); }));
  const field = screen.getByLabelText("Your message");

  await userEvent.type(field, "hello{Enter}");
  await userEvent.paste(clipboardOf(new File(["a,b"], "late.csv", { type: "text/csv" })));
  way[0]?.({ status: 202, body: ACCEPTED });
  await waitFor(() => { expect(field).toHaveValue(""); });

  expect(screen.getByRole("listitem")).toHaveTextContent("late.csv");
});

function clipboardOf(...files: readonly File[]): DataTransfer {
  return { files, getData: () => "" } as unknown as DataTransfer;
}

test("on a touch screen Enter adds a line, and the button sends", async () => {
  touchScreen();
  const { requests } = show(false);

  await userEvent.type(screen.getByLabelText("Your message"), "one{Enter}two");
  expect(screen.getByLabelText("Your message")).toHaveValue("one\ntwo");
  expect(screen.getByLabelText("Your message")).toHaveAttribute("enterkeyhint", "enter");
  await userEvent.click(screen.getByRole("button", { name: "Send" }));

  await waitFor(() => { expect(requests.map(({ body }) => body)).toEqual([{ text: "one\ntwo", time_zone: ZONE }]); });
});

test("changes to a stored file are reported", async () => {
  show(false, () => ({ status: 202, body: { ...ACCEPTED, receipt: { state: "queued", file_notices: ["a.txt was converted to UTF-8."] } } }));

  await userEvent.type(screen.getByLabelText("Your message"), "hello{Enter}");

  expect(await screen.findAllByText("a.txt was converted to UTF-8.")).not.toHaveLength(0);
});
