import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { ProblemError } from "../api";
import { buildText, buildTurn } from "../testing/builders";
import { LIMITS, WidgetBridge } from "./bridge";

type Sent = Readonly<Record<string, unknown>> & { readonly everturn: string };

function openBridge(call: (operation: string, args: object) => Promise<unknown> = () => Promise.resolve(null)) {
  const sent: Sent[] = [];
  const proposed: string[] = [];
  const dropped: number[] = [];
  const stops: string[] = [];
  const clock = { now: 0 };
  const bridge = new WidgetBridge({
    conversationId: "conv_1",
    post: (text) => { sent.push(JSON.parse(text) as Sent); },
    call,
    describe: (error) => (error instanceof ProblemError ? { type: error.type, title: error.title, status: error.status, detail: error.detail } : { type: "about:blank", title: "", status: 0, detail: String(error) }),
    propose: (text) => { proposed.push(text); },
    onDropped: (count) => { dropped.push(count); },
    onStop: (reason) => { stops.push(reason); },
    now: () => clock.now,
  });
  const say = (message: unknown): void => { bridge.receive({ data: JSON.stringify(message) }); };
  const texts = (): readonly Sent[] => sent.filter((each) => each.everturn === "text");
  return { bridge, say, sent, texts, proposed, dropped, stops, clock };
}

const canvas = (text: string) => buildText({ channel: "canvas", marker: "canvas", format: "json", artifact: "board.json", text });

beforeEach(() => { vi.useFakeTimers(); });
afterEach(() => { vi.useRealTimers(); });

test("a widget that is ready gets the texts for widgets, then only what is new", () => {
  const { bridge, say, sent, texts } = openBridge();
  const turn = buildTurn({ status: "running", texts: [buildText(), buildText({ channel: "thinking", marker: "thinking" }), canvas("[1"), buildText({ channel: "status", marker: "subsystem", text: "ok" })] });
  bridge.update([turn]);
  vi.advanceTimersByTime(1_000);
  expect(sent).toEqual([]);

  say({ everturn: "ready" });
  vi.advanceTimersByTime(LIMITS.deliveryMs);
  const first = texts();
  bridge.update([{ ...turn, texts: [canvas("[1,2")] }]);
  bridge.update([{ ...turn, texts: [canvas("[1,2,3]")], status: "completed" }]);
  vi.advanceTimersByTime(LIMITS.deliveryMs);
  bridge.update([{ ...turn, texts: [canvas("{}")], status: "completed" }]);
  vi.advanceTimersByTime(LIMITS.deliveryMs);

  expect(sent[0]).toEqual({ everturn: "start", version: 1, conversation_id: "conv_1" });
  expect(first).toEqual([
    { everturn: "text", turn_id: "turn_1", round: 1, channel: "canvas", instance: 0, marker: "canvas", format: "json", artifact: "board.json", offset: 0, text: "[1" },
    { everturn: "text", turn_id: "turn_1", round: 1, channel: "status", instance: 0, marker: "subsystem", format: "markdown", offset: 0, text: "ok" },
  ]);
  expect(texts().slice(2).map(({ offset, text }) => [offset, text])).toEqual([[2, ",2,3]"], [0, "{}"]]);
  expect(sent.filter((each) => each.everturn === "turn").map(({ status }) => status)).toEqual(["running", "completed"]);
});

test("a long text is delivered in pieces, and again to a page that was loaded again", () => {
  const { bridge, say, texts } = openBridge();
  const long = "x".repeat(2 * LIMITS.deliveryChars + 5);
  bridge.update([buildTurn({ texts: [canvas(long)] })]);
  say({ everturn: "ready" });
  vi.advanceTimersByTime(LIMITS.deliveryMs);
  expect(texts()).toHaveLength(1);
  vi.advanceTimersByTime(10 * LIMITS.deliveryMs);
  expect(texts().map(({ text }) => text).join("")).toBe(long);

  say({ everturn: "ready" });
  vi.advanceTimersByTime(10 * LIMITS.deliveryMs);

  expect(texts().map(({ text }) => text).join("")).toBe(long + long);
});

test("calls get the result or the problem of the operation, with null as it is", async () => {
  const { say, sent } = openBridge((operation, args) => {
    if (operation === "list_tickets") return Promise.resolve({ args, none: null });
    return Promise.reject(new ProblemError({ type: "urn:everturn:problem:not-found", title: "Not found", status: 404, detail: "" }));
  });
  say({ everturn: "call", id: 1, operation: "list_tickets", arguments: { state: null } });
  say({ everturn: "call", id: "b", operation: "nothing" });
  say({ everturn: "call", id: "c", operation: "../../conversations" });
  await vi.runAllTimersAsync();

  expect(sent.find(({ id }) => id === 1)).toEqual({ everturn: "result", id: 1, result: { args: { state: null }, none: null } });
  expect(sent.find(({ id }) => id === "b")).toMatchObject({ everturn: "error", error: { status: 404 } });
  expect(sent.find(({ id }) => id === "c")).toMatchObject({ everturn: "error", error: { status: 422 } });
});

test("few calls run at once, some wait, and others are refused", async () => {
  const ends: (() => void)[] = [];
  const { bridge, say, sent } = openBridge(() => new Promise((resolve) => { ends.push(() => { resolve(0); }); }));
  for (let id = 0; id < LIMITS.callsAtOnce + LIMITS.waitingCalls + 2; id += 1) say({ everturn: "call", id, operation: "slow" });
  expect(ends).toHaveLength(LIMITS.callsAtOnce);
  expect(sent.map(({ error }) => (error as { status: number }).status)).toEqual([429, 429]);

  ends[0]?.();
  await vi.runAllTimersAsync();
  expect(ends).toHaveLength(LIMITS.callsAtOnce + 1);
  bridge.close();
  ends[1]?.();
  await vi.runAllTimersAsync();

  expect(ends).toHaveLength(LIMITS.callsAtOnce + 1);
});

test("a message is only proposed, one at a time, and the widget learns the answer", () => {
  const { bridge, say, sent, proposed } = openBridge();
  say({ everturn: "message", id: 1, text: "Close ticket 7" });
  say({ everturn: "message", id: 2, text: "Close all" });
  say({ everturn: "message", id: 3, text: "x".repeat(LIMITS.proposalChars + 1) });
  bridge.answerProposal(false);
  say({ everturn: "message", id: 4, text: "Close ticket 8" });

  expect(proposed).toEqual(["Close ticket 7", "Close ticket 8"]);
  expect(sent.map(({ everturn, id }) => [everturn, id])).toEqual([["error", 2], ["error", 3], ["result", 1]]);
  expect(sent[2]).toMatchObject({ result: { sent: false } });
});

test("a flood is dropped unread and counted a few times, then the widget is stopped", () => {
  const { bridge, dropped, stops, proposed, sent } = openBridge();
  let reads = 0;
  const flood = { get data() { reads += 1; return JSON.stringify({ everturn: "message", id: reads, text: "spam" }); } };
  for (let count = 0; count < 10_000; count += 1) bridge.receive(flood);

  expect(reads).toBe(LIMITS.burst);
  expect(dropped).toEqual([1, 100, 200, 300, 400, 500, 600, 700, 800, 900]);
  expect(stops).toHaveLength(1);
  expect(proposed).toEqual(["spam"]);
  expect(sent.length).toBeLessThan(LIMITS.burst + 20);
});

test("a widget that pauses is not stopped for messages that were dropped long ago", () => {
  const { bridge, say, stops, clock, proposed } = openBridge();
  for (let round = 0; round < 5; round += 1) {
    for (let count = 0; count < LIMITS.dropped / 2; count += 1) say({});
    clock.now += 60_000;
  }
  say({ everturn: "message", id: 1, text: "hello" });

  expect([stops, proposed]).toEqual([[], ["hello"]]);
  bridge.close();
});

test.each([{ everturn: "message", id: 1, text: "x" }, null, 5, new Uint8Array(8), "text", "[]", '"ready"', '{"everturn":"eval"}', '{"everturn":"call","id":{},"operation":"a"}', "[".repeat(60_000)])(
  "what is no message is ignored: %.40s",
  (data) => {
    const { bridge, sent, proposed, stops } = openBridge();
    bridge.receive({ data });
    expect([sent, proposed, stops]).toEqual([[], [], []]);
  },
);

test("a message that is too long stops the widget before it is parsed", () => {
  const parse = vi.spyOn(JSON, "parse");
  const { bridge, stops } = openBridge();
  bridge.receive({ data: "x".repeat(LIMITS.messageChars + 1) });

  expect(stops).toEqual(["It sent a message of more than 65,536 characters."]);
  expect(parse).not.toHaveBeenCalled();
});
