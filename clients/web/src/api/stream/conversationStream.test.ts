// @vitest-environment node
import type { ServerResponse } from "node:http";

import { afterEach, describe, expect, it, vi } from "vitest";

import { EverturnClient } from "../client";
import { TIMINGS, pause } from "../http/backoff";
import { InvalidResponse } from "../http/errors";
import { type Reply, TestServer, breakOff, json, problem } from "../testing/server";
import { type ConversationSnapshot, ConversationStream } from "./conversationStream";
import type { Frames } from "./frames";
import type { Network } from "./network";
import type { StreamSlots } from "./streamSlots";

const FAST = { ...TIMINGS, silenceMs: 2_000, firstDelayMs: 1, maxDelayMs: 2 };
const LIMIT_MS = 4_000;
const leaveNothing = () => () => undefined;
const ONLINE: Network = { isOnline: () => true, onReturn: leaveNothing, isVisible: () => true, onVisibilityChange: leaveNothing };
const FREE_SLOTS: StreamSlots = { run: (work) => work() };
const AT_ONCE: Frames = {
  request: (draw) => {
    const timer = setTimeout(draw, 0);
    return () => { clearTimeout(timer); };
  },
};

function frame(type: string, data: object, id?: string): string {
  const event = { ...(id === undefined ? {} : { id }), type, ts: "", conversation_id: "conv_1", turn_id: "turn_1", round: 1, data };
  return `${id === undefined ? "" : `id: ${id}\n`}event: ${type.replace(".", "_")}\ndata: ${JSON.stringify(event)}\n\n`;
}

function turn(ordinal: number, status = "completed") {
  const empty = { attachments: [], texts: [], steps: [], plans: [], files: [], citations: [], signals: [], approvals: [] };
  const rest = { feedback: [], followups: [], rounds: 0, sealed_round: 0, sources_used: [], created_at: "", text: "" };
  return { turn_id: `turn_${ordinal}`, ordinal, status, ...empty, ...rest };
}

function state(turns: readonly object[], cursor: string, more: object) {
  const conversation = { conversation_id: "conv_1", title: "", state: "running", archived: false, created_at: "", last_activity_at: "" };
  return { conversation, turns, cursor, ...more };
}

function snapshot(turns: readonly object[], cursor = "1-1", more: object = {}): string {
  return frame("stream.snapshot", { state: state(turns, cursor, more) });
}

const READY = frame("ready", {});

function delta(id: string, text: string): string {
  return frame("chat.delta", { channel: "answer", instance: 0, index: 0, text, completed: false, marker: "answer", format: "markdown" }, id);
}

/** Sends these frames and leaves the connection open, or ends it. */
function stream(frames: readonly string[], end: "open" | "ends" = "open"): Reply {
  return (response: ServerResponse) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(frames.join(""));
    if (end === "ends") response.end();
  };
}

const followed: (() => void)[] = [];

afterEach(() => {
  for (const leave of followed.splice(0)) leave();
});

class Watch {
  readonly stream: ConversationStream;
  readonly seen: ConversationSnapshot[] = [];

  constructor(server: TestServer, options: { network?: Network; timings?: typeof FAST; slots?: StreamSlots } = {}) {
    const client = new EverturnClient({ baseUrl: server.url, tenant: "a", project: "b", timings: options.timings ?? FAST });
    this.stream = new ConversationStream(client, "conv_1", options.network ?? ONLINE, AT_ONCE, options.slots ?? FREE_SLOTS);
    followed.push(this.stream.subscribe(() => this.seen.push(this.stream.getSnapshot())));
  }

  get now(): ConversationSnapshot {
    return this.stream.getSnapshot();
  }

  get answer(): string | undefined {
    return this.now.state?.turns.at(-1)?.texts[0]?.text;
  }

  /** Waits until the condition holds; a timeout reports what was last seen. */
  until(isSo: (now: ConversationSnapshot) => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle = () => {
        leave();
        clearTimeout(timer);
      };
      const look = () => {
        if (!isSo(this.now)) return;
        settle();
        resolve();
      };
      const leave = this.stream.subscribe(look);
      const timer = setTimeout(() => {
        settle();
        reject(new Error(`Still ${JSON.stringify(this.now)}`));
      }, LIMIT_MS);
      look();
    });
  }

  untilAnswer(text: string): Promise<void> {
    return this.until(() => this.answer === text);
  }
}

describe("following a conversation", () => {
  it("resumes after a cut without loss or duplicated text", async () => {
    const server = await TestServer.start(
      stream([READY, snapshot([turn(1, "running")]), delta("1-2", "On")], "ends"),
      stream([READY, delta("1-2", "On"), delta("1-3", "e")]),
    );

    const watch = new Watch(server);
    await watch.untilAnswer("One");

    expect(server.requests.map((requests) => requests.headers["last-event-id"])).toEqual([undefined, "1-2"]);
    expect(watch.now).toMatchObject({ connection: "live", state: { cursor: "1-3" } });
  });

  it("reconnects after a server restarts, is unreachable, or is busy", async () => {
    const server = await TestServer.start(
      stream([READY, snapshot([turn(1, "running")]), frame("server.shutdown", { retry_ms: 1 })], "ends"),
      breakOff,
      problem(503, {}, { "Retry-After": "0" }),
      stream([READY, delta("1-2", "Here")]),
    );

    const watch = new Watch(server);
    await watch.untilAnswer("Here");

    expect(watch.seen.some((seen) => seen.connection === "reconnecting" && seen.problem !== undefined)).toBe(true);
    expect(watch.now.problem).toBeUndefined();
  });

  it("takes the snapshot after a gap", async () => {
    const server = await TestServer.start(
      stream([READY, snapshot([turn(1, "running")]), delta("1-2", "Lost")], "ends"),
      stream([READY, frame("stream.gap", { after: "1-2" }), snapshot([turn(2, "running")], "5-1"), delta("5-2", "New")]),
    );

    const watch = new Watch(server);
    await watch.until(({ state }) => state?.cursor === "5-2");

    expect(watch.now.state?.turns.map((each) => each.ordinal)).toEqual([2]);
  });

  it.each([401, 403, 404])("ends with status %i, and starts again on request", async (status) => {
    const server = await TestServer.start(problem(status), stream([READY, snapshot([])]));

    const watch = new Watch(server);
    await watch.until(({ connection }) => connection === "refused");
    expect(watch.now.problem).toMatchObject({ status });
    watch.stream.reopen();

    await watch.until(({ state }) => state !== null);
    expect(server.requests).toHaveLength(2);
  });

  it.each([400, 410])("requests a snapshot when its cursor is rejected with %i", async (status) => {
    const server = await TestServer.start(
      stream([READY, snapshot([turn(1)], "1-5")], "ends"),
      problem(status),
      stream([READY, snapshot([turn(1)], "1-3")]),
    );

    const watch = new Watch(server);
    await watch.until(({ state }) => state?.cursor === "1-3");

    expect(server.requests.map((requests) => requests.headers["last-event-id"])).toEqual([undefined, "1-5", undefined]);
  });

  it("leaves a connection on which nothing arrives", async () => {
    const server = await TestServer.start(stream([READY, snapshot([turn(1, "running")])]), stream([READY, delta("1-2", "On")]));

    const watch = new Watch(server, { timings: { ...FAST, silenceMs: 50 } });
    await watch.until(() => server.requests.length > 1 && watch.answer === "On");

    expect(server.requests[1]?.headers["last-event-id"]).toBe("1-1");
  });

  it("waits for the network while offline", async () => {
    let isOnline = true;
    let comeBack = () => undefined as unknown;
    const network: Network = {
      ...ONLINE,
      isOnline: () => isOnline,
      onReturn: (listener) => {
        comeBack = listener;
        return () => undefined;
      },
    };
    const server = await TestServer.start(
      (response, requests) => {
        isOnline = false;
        stream([READY, snapshot([turn(1, "running")])], "ends")(response, requests);
      },
      stream([READY, delta("1-2", "Back")]),
    );

    const watch = new Watch(server, { network });
    await watch.until(({ connection }) => connection === "offline");
    expect(server.requests).toHaveLength(1);
    isOnline = true;
    comeBack();

    await watch.untilAnswer("Back");
  });

  it("disconnects while the tab is hidden, and resumes when it is visible again", async () => {
    let isVisible = true;
    let look = () => undefined as unknown;
    const network: Network = {
      ...ONLINE,
      isVisible: () => isVisible,
      onVisibilityChange: (listener) => {
        look = listener;
        return () => undefined;
      },
    };
    let hasLeft = false;
    const server = await TestServer.start(
      (response, requests) => {
        response.on("close", () => { hasLeft = true; });
        stream([READY, snapshot([turn(1, "running")]), delta("1-2", "On")])(response, requests);
      },
      stream([READY, delta("1-3", "e")]),
    );
    const watch = new Watch(server, { network });
    await watch.untilAnswer("On");

    isVisible = false;
    look();
    await vi.waitFor(() => { expect(hasLeft).toBe(true); });
    look();
    expect(server.requests).toHaveLength(1);
    isVisible = true;
    look();

    await watch.untilAnswer("One");
    expect(server.requests.map((requests) => requests.headers["last-event-id"])).toEqual([undefined, "1-2"]);
  });

  it("reports that it waits for other tabs, and follows when a slot is free", async () => {
    let begin = () => Promise.resolve();
    const slots: StreamSlots = {
      run: (work, _, onWait) => {
        begin = work;
        onWait();
        return Promise.resolve();
      },
    };
    const server = await TestServer.start(stream([READY, snapshot([turn(1, "running")]), delta("1-2", "On")]));
    const watch = new Watch(server, { slots });

    await watch.until(({ connection }) => connection === "waiting");
    expect(server.requests).toHaveLength(0);
    void begin();

    await watch.untilAnswer("On");
  });

  it("keeps older turns when the next snapshot overlaps them", async () => {
    const server = await TestServer.start(
      stream([READY, snapshot([turn(3)], "1-1", { next_cursor: "older" })]),
      json(state([turn(1), turn(2)], "1-1", { next_cursor: null })),
      stream([READY, snapshot([turn(3), turn(4)], "2-1", { next_cursor: "other" })]),
    );
    const watch = new Watch(server);
    await watch.until(({ state }) => state !== null);

    await Promise.all([watch.stream.loadOlder(), watch.stream.loadOlder()]);
    expect(watch.now.state?.turns.map((each) => each.ordinal)).toEqual([1, 2, 3]);
    expect(watch.now.state).not.toHaveProperty("next_cursor");
    watch.stream.reopen();
    await watch.until(({ state }) => state?.cursor === "2-1");

    expect(watch.now.state?.turns.map((each) => each.ordinal)).toEqual([1, 2, 3, 4]);
    expect(watch.now.state).not.toHaveProperty("next_cursor");
    expect(server.requests).toHaveLength(3);
  });

  it("loads large pages back to a turn, and reports a missing turn", async () => {
    const server = await TestServer.start(
      stream([READY, snapshot([turn(5)], "1-1", { next_cursor: "c4" })]),
      json(state([turn(3), turn(4)], "1-1", { next_cursor: "c2" })),
      json(state([turn(1), turn(2)], "1-1", { next_cursor: null })),
    );
    const watch = new Watch(server);
    await watch.until(({ state }) => state !== null);
    const { signal } = new AbortController();

    expect(await watch.stream.loadBackTo("turn_5", signal)).toBe(true);
    expect(server.requests).toHaveLength(1);
    expect(await watch.stream.loadBackTo("turn_4", signal)).toBe(true);
    expect(watch.now.state?.turns.map((each) => each.ordinal)).toEqual([3, 4, 5]);
    expect(await watch.stream.loadBackTo("turn_9", signal)).toBe(false);
    expect(watch.now.state?.turns.map((each) => each.ordinal)).toEqual([1, 2, 3, 4, 5]);
    expect(server.requests.slice(1).map((requests) => requests.body)).toEqual([
      '{"conversation_id":"conv_1","cursor":"c4","limit":100}',
      '{"conversation_id":"conv_1","cursor":"c2","limit":100}',
    ]);
  });

  it("reads characters and line ends that arrive in pieces, beside comments and unknown fields", async () => {
    const text = ["retry: 1\n\n: heartbeat\n\nother: x\n", READY, snapshot([turn(1, "running")]), delta("1-2", "Grüße €")].join("");
    const bytes = Buffer.from(text.replaceAll("\n", "\r\n"));
    const server = await TestServer.start((response) => {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      const ends = [...bytes.keys()].filter((at) => bytes.readUInt8(at) > 0x7f || bytes.readUInt8(at) === 0x0d);
      void (async () => {
        for (const [index, end] of [...ends, bytes.length].entries()) {
          response.write(bytes.subarray((ends[index - 1] ?? -1) + 1, end + 1));
          await pause(2);
        }
      })();
    });

    const watch = new Watch(server);

    await watch.untilAnswer("Grüße €");
  });

  it.each([["line", ""], ["event", "\n"]])("refuses a %s that does not end", async (_, end) => {
    const piece = `data: ${"x".repeat(1_000_000)}${end}`;
    const server = await TestServer.start(stream([READY, ...Array<string>(40).fill(piece)]));

    const watch = new Watch(server);
    await watch.until(({ connection }) => connection === "refused");

    expect(watch.now.problem).toBeInstanceOf(InvalidResponse);
    expect(server.requests).toHaveLength(1);
  });

  it("ends at an event that cannot be folded", async () => {
    const server = await TestServer.start(
      stream([READY, snapshot([turn(1, "running")]), delta("1-2", "On"), frame("chat.files", {}, "1-3"), delta("1-4", "e")]),
    );

    const watch = new Watch(server);
    await watch.until(({ connection }) => connection === "refused");

    expect(watch.now.problem).toBeInstanceOf(InvalidResponse);
    expect(watch.answer).not.toBe("One");
    expect(server.requests).toHaveLength(1);
  });

  it("returns the same snapshot until something changes, and notifies once per frame", async () => {
    const pieces = Array.from({ length: 100 }, (_, n) => delta(`1-${n + 2}`, "x"));
    const server = await TestServer.start(stream([READY, snapshot([turn(1, "running")]), ...pieces]));

    const watch = new Watch(server);
    await watch.untilAnswer("x".repeat(100));

    expect(watch.now).toBe(watch.stream.getSnapshot());
    expect(watch.seen.length).toBeLessThan(10);
  });
});
