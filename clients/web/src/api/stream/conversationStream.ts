// One conversation as a store for React: `subscribe`, and `getSnapshot`, which returns the same object until something
// changes.
import type { EverturnClient } from "../client";
import { foldEvent } from "../fold/fold";
import { NOTHING, type Transient, foldTransient } from "../fold/transient";
import { InvalidResponse } from "../http/errors";
import type { StateView, StreamEvent, TurnView } from "../types";
import { type ConnectionStatus, EventStream } from "./eventStream";
import { type Frames, browserFrames } from "./frames";
import { prependOlder, mergeOlder, replaceTurn } from "./history";
import { type Network, browserNetwork } from "./network";
import { type StreamSlots, browserSlots } from "./streamSlots";

/** What a screen shows. `state` is null until the first snapshot. */
export interface ConversationSnapshot extends ConnectionStatus, Transient {
  readonly state: StateView | null;
}

/** How many events may wait for the next frame. */
const MAX_WAITING = 500;
/** Page size while loading back to an old turn; the server's maximum. */
const MANY_TURNS = 100;
const BEGINNING: ConversationSnapshot = { state: null, connection: "connecting", ...NOTHING };

/**
 * Owns one connection while there is a subscriber and the tab is visible. The state outlives the connection, so that a
 * later subscriber resumes.
 */
export class ConversationStream {
  private readonly client: EverturnClient;
  private readonly conversationId: string;
  private readonly network: Network;
  private readonly frames: Frames;
  private readonly slots: StreamSlots;
  private readonly listeners = new Set<() => void>();
  private snapshot: ConversationSnapshot = BEGINNING;
  private waiting: StreamEvent[] = [];
  private status: ConnectionStatus = BEGINNING;
  private cancelFrame: (() => void) | undefined;
  private running: AbortController | undefined;
  private unsubscribeVisibility: (() => void) | undefined;
  private loading: Promise<void> | undefined;

  constructor(client: EverturnClient, conversationId: string, network = browserNetwork, frames = browserFrames, slots = browserSlots) {
    this.client = client;
    this.conversationId = conversationId;
    this.network = network;
    this.frames = frames;
    this.slots = slots;
  }

  /** The first listener opens the connection; when the last one unsubscribes, it is closed. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    this.unsubscribeVisibility ??= this.network.onVisibilityChange(this.follow);
    this.follow();
    return () => {
      this.listeners.delete(listener);
      this.follow();
      if (this.listeners.size > 0) return;
      this.unsubscribeVisibility?.();
      this.unsubscribeVisibility = undefined;
    };
  };

  readonly getSnapshot = (): ConversationSnapshot => this.snapshot;

  /** Open a new connection, for example with a new credential after the old one was rejected. */
  reopen(): void {
    this.close();
    this.follow();
  }

  /** Load the page of turns before the oldest one. Concurrent calls share one request. */
  loadOlder(limit?: number): Promise<void> {
    this.loading ??= this.fetchOlder(limit).finally(() => {
      this.loading = undefined;
    });
    return this.loading;
  }

  /**
   * Load older turns until this one is there. Waits for the first state. False if the conversation has no such turn or
   * `stop` was aborted.
   */
  async loadBackTo(turnId: string, stop: AbortSignal): Promise<boolean> {
    while (!stop.aborted) {
      const { state } = this.snapshot;
      if (state?.turns.some((turn) => turn.turn_id === turnId) === true) return true;
      if (state?.next_cursor === undefined) return false;
      await this.loadOlder(MANY_TURNS);
    }
    return false;
  }

  /** Replace an ended turn by a fresh copy: ratings are not part of the stream. */
  putTurn(turn: TurnView): void {
    this.flush();
    this.publish((state) => replaceTurn(state, turn));
  }

  /** A hidden tab closes its connection: a browser allows only a few for all tabs. */
  private readonly follow = (): void => {
    const isWanted = this.listeners.size > 0 && this.network.isVisible();
    if (isWanted && this.running === undefined) this.open();
    else if (!isWanted && this.running !== undefined) this.close();
  };

  private open(): void {
    const running = new AbortController();
    this.running = running;
    const { requests, timings, random } = this.client;
    const path = this.client.eventsPath(this.conversationId);
    const isCurrent = () => this.running === running;
    const onStatus = (status: ConnectionStatus): void => { if (isCurrent()) this.takeStatus(status); };
    const stream = new EventStream(
      { requests, path, timings, random, network: this.network, after: this.snapshot.state?.cursor },
      { onEvents: (events) => { if (isCurrent()) this.take(events); }, onStatus },
    );
    this.slots
      .run(() => stream.run(running.signal), running.signal, () => { onStatus({ connection: "waiting" }); })
      .catch((error: unknown) => { if (isCurrent()) this.fail(error); });
  }

  private close(): void {
    this.running?.abort();
    this.running = undefined;
    this.flush();
  }

  private take(events: readonly StreamEvent[]): void {
    this.waiting.push(...events);
    if (this.waiting.length > MAX_WAITING) this.flush();
    else this.requestFrame();
  }

  private takeStatus(status: ConnectionStatus): void {
    this.status = status;
    this.requestFrame();
  }

  private requestFrame(): void {
    this.cancelFrame ??= this.frames.request(() => { this.flush(); });
  }

  private flush(): void {
    this.cancelFrame?.();
    this.cancelFrame = undefined;
    const events = this.waiting;
    this.waiting = [];
    try {
      this.fold(events);
    } catch (error) {
      this.fail(error);
    }
  }

  private fold(events: readonly StreamEvent[]): void {
    let { state, seen } = { state: this.snapshot.state, seen: transientOf(this.snapshot) };
    for (const event of events) {
      if (event.type === "stream.snapshot") state = mergeOlder(state, event.data.state);
      else if (state !== null) state = foldEvent(state, event);
      seen = foldTransient(seen, event);
    }
    this.set({ state, ...this.status, ...seen });
  }

  /** Later events cannot be applied without this one, so the stream ends and the error is shown. */
  private fail(error: unknown): void {
    this.running?.abort();
    this.running = undefined;
    this.status = { connection: "refused", problem: new InvalidResponse("an event could not be processed", error) };
    this.set({ ...this.snapshot, ...this.status });
  }

  private async fetchOlder(limit?: number): Promise<void> {
    const cursor = this.snapshot.state?.next_cursor;
    if (cursor === undefined) return;
    const page = await this.client.loadTurns(this.conversationId, { cursor, ...(limit === undefined ? {} : { limit }) });
    this.flush();
    // A snapshot may have replaced the turns that this page was loaded for.
    this.publish((state) => (state.next_cursor === cursor ? prependOlder(state, page) : state));
  }

  private publish(change: (state: StateView) => StateView): void {
    const { state } = this.snapshot;
    if (state !== null) this.set({ ...this.snapshot, state: change(state) });
  }

  private set(next: ConversationSnapshot): void {
    if (isSame(this.snapshot, next)) return;
    this.snapshot = next;
    for (const listener of this.listeners) listener();
  }
}

function transientOf({ state: _, connection: __, problem: ___, ...seen }: ConversationSnapshot): Transient {
  return seen;
}

function isSame(one: ConversationSnapshot, other: ConversationSnapshot): boolean {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]) as Set<keyof ConversationSnapshot>;
  return [...names].every((name) => one[name] === other[name]);
}
