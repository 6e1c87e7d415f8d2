// One conversation's events as one endless sequence, over as many connections as needed.
import { type EventSourceMessage, createParser } from "eventsource-parser";

import { ORIGIN, isAfter, tryParseCursor } from "../fold/cursor";
import { readOrFail, readProblem } from "../http/responses";
import { Backoff, type Timings, pause } from "../http/backoff";
import { InvalidResponse, ProblemError, Unreachable } from "../http/errors";
import type { Requests } from "../http/requests";
import type { StreamEvent } from "../types";
import { tryParseEvent } from "./events";
import type { Network } from "./network";

/**
 * `refused` is final: only a new credential or another conversation helps. `waiting`: other tabs already follow as many
 * conversations as a browser can.
 */
export type Connection = "connecting" | "waiting" | "live" | "reconnecting" | "offline" | "refused";

/** State of the connection; `problem` is the reason why it is not live. */
export interface ConnectionStatus {
  readonly connection: Connection;
  readonly problem?: ProblemError | InvalidResponse;
}

export interface StreamParts {
  readonly requests: Requests;
  readonly path: string;
  readonly timings: Timings;
  readonly random: () => number;
  readonly network: Network;
  /** The cursor of the state that is already known. */
  readonly after: string | undefined;
}

export interface StreamListener {
  onEvents(events: readonly StreamEvent[]): void;
  onStatus(status: ConnectionStatus): void;
}

/** Of one event, in characters; a server that sends more without an end is refused. */
const MAX_EVENT_CHARS = 32 * 1024 * 1024;
const TRANSIENT = new Set([408, 425, 429, 500, 502, 503, 504]);
/** The server rejected this cursor or never issued it. */
const BAD_CURSOR = new Set([400, 410]);
/** After this time we try to connect although the browser reports that it is offline, because it may be wrong. */
const OFFLINE_MS = 30_000;
const NONE = new AbortController().signal;

/** Follows one conversation; owns the cursor. Call `run` once. */
export class EventStream {
  private readonly parts: StreamParts;
  private readonly listener: StreamListener;
  private readonly backoff: Backoff;
  private cursor: string | undefined;
  private requestedDelayMs: number | undefined;
  private isFirst = true;

  constructor(parts: StreamParts, listener: StreamListener) {
    this.parts = parts;
    this.listener = listener;
    this.backoff = new Backoff(parts.timings, parts.random);
    this.cursor = parts.after;
  }

  /**
   * Runs until `stop` is aborted or the server rejects the request. A cut, an end, silence, 429 and 5xx are retried.
   */
  async run(stop: AbortSignal): Promise<void> {
    for (;;) {
      this.report({ connection: this.isFirst ? "connecting" : "reconnecting" });
      const failure = await this.runConnection(stop).catch((error: unknown) => asFailure(error));
      if (isOver(stop)) return;
      if (failure !== undefined && this.isFinal(failure)) {
        this.report({ connection: "refused", problem: failure });
        return;
      }
      this.isFirst = false;
      await this.waitForAnother(failure, stop);
      if (isOver(stop)) return;
    }
  }

  private async runConnection(stop: AbortSignal): Promise<undefined> {
    const silence = new AbortController();
    const signal = AbortSignal.any([stop, silence.signal]);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const hear = () => {
      clearTimeout(timer);
      timer = setTimeout(() => { silence.abort(new Unreachable()); }, this.parts.timings.silenceMs);
    };
    hear();
    try {
      const response = await this.open(signal);
      if (response.status !== 200) throw await readProblem(response);
      await this.read(response, hear);
    } finally {
      clearTimeout(timer);
      silence.abort(new Unreachable());
    }
  }

  private open(signal: AbortSignal): Promise<Response> {
    const place = this.cursor === undefined ? {} : { "Last-Event-ID": this.cursor };
    const call = { method: "GET", path: this.parts.path } as const;
    return this.parts.requests.request(call, signal, { Accept: "text/event-stream", ...place });
  }

  private async read(response: Response, hear: () => void): Promise<void> {
    const decoder = new TextDecoder();
    const frames: EventSourceMessage[] = [];
    const parser = createParser({
      maxBufferSize: MAX_EVENT_CHARS,
      onEvent: (frame) => { frames.push(frame); },
      onRetry: (retryMs) => { this.requestedDelayMs ??= retryMs; },
      onError: (error) => {
        // Its other errors are fields that the standard does not know.
        if (error.type === "max-buffer-size-exceeded") throw new InvalidResponse(`an event is longer than ${MAX_EVENT_CHARS} characters`);
      },
    });
    const reader = response.body?.getReader();
    while (reader !== undefined) {
      const { done, value } = await readOrFail(reader);
      if (done) return;
      hear();
      parser.feed(decoder.decode(value, { stream: true }));
      const events = frames.splice(0).flatMap((frame) => this.take(tryParseEvent(frame)));
      if (events.length > 0) this.listener.onEvents(events);
    }
  }

  /** The event, if it is new. */
  private take(event: StreamEvent | null): StreamEvent[] {
    if (event === null) return [];
    if (event.type === "ready") {
      this.report({ connection: "live" });
      return [event];
    }
    if (event.type === "stream.snapshot") this.cursor = event.data.state.cursor;
    else if (event.id !== undefined && !this.advance(event.id)) return [];
    // Do not reset the delay on connect: a server may accept the connection and crash, again and again.
    this.backoff.reset();
    if (event.type === "server.shutdown") this.requestedDelayMs = event.data.retry_ms;
    return [event];
  }

  private advance(id: string): boolean {
    const cursor = tryParseCursor(id);
    if (cursor === null) throw new InvalidResponse("an event has an invalid id");
    if (!isAfter(cursor, tryParseCursor(this.cursor) ?? ORIGIN)) return false;
    this.cursor = id;
    return true;
  }

  private isFinal(failure: ProblemError | InvalidResponse): boolean {
    if (failure instanceof InvalidResponse) return true;
    if (TRANSIENT.has(failure.status)) return false;
    if (BAD_CURSOR.has(failure.status) && this.cursor !== undefined) {
      // Without a cursor the stream begins with a snapshot.
      this.cursor = undefined;
      return false;
    }
    return true;
  }

  private async waitForAnother(failure: ProblemError | InvalidResponse | undefined, stop: AbortSignal): Promise<void> {
    const { network } = this.parts;
    const retryAfterS = failure instanceof ProblemError ? failure.retryAfterS : undefined;
    const delay = this.backoff.nextDelayMs(retryAfterS === undefined ? this.requestedDelayMs : retryAfterS * 1000);
    this.requestedDelayMs = undefined;
    const isOffline = failure === undefined && !network.isOnline();
    const reason = failure === undefined ? {} : { problem: failure };
    this.report({ connection: isOffline ? "offline" : "reconnecting", ...reason });
    const wake = new AbortController();
    const forget = network.onReturn(() => { wake.abort(); });
    try {
      await pause(isOffline ? OFFLINE_MS : delay, AbortSignal.any([stop, retryAfterS === undefined ? wake.signal : NONE]));
    } catch (error) {
      if (!stop.aborted && !wake.signal.aborted) throw error;
    } finally {
      forget();
    }
  }

  private report(status: ConnectionStatus): void {
    this.listener.onStatus(status);
  }
}

/** A function, because the compiler would narrow `stop.aborted` to false after the first check. */
function isOver(stop: AbortSignal): boolean {
  return stop.aborted;
}

/** The problem to report, or undefined for a broken connection. */
function asFailure(error: unknown): ProblemError | InvalidResponse | undefined {
  if (error instanceof Unreachable) return undefined;
  return error instanceof ProblemError || error instanceof InvalidResponse ? error : new InvalidResponse("it could not be processed", error);
}
