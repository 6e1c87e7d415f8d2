// @vitest-environment node
import { expect, test, vi } from "vitest";

import { MAX_STREAMS, runInSlot } from "./streamSlots";

/** Locks as browsers implement them: one holder per name; an abort leaves the queue. */
class Locks {
  private readonly tails = new Map<string, Promise<unknown>>();
  private readonly held = new Set<string>();

  readonly query = (): Promise<LockManagerSnapshot> => Promise.resolve({});

  async request<Result>(name: string, options: LockOptions, run: (lock: Lock | null) => Promise<Result>): Promise<Result> {
    if (options.ifAvailable === true && this.held.has(name)) return run(null);
    const before = this.tails.get(name) ?? Promise.resolve();
    const mine = this.hold(name, before, options.signal, run);
    this.tails.set(name, Promise.allSettled([before, mine]));
    if (options.ifAvailable === true) this.held.add(name);
    return mine;
  }

  private async hold<Result>(name: string, before: Promise<unknown>, signal: AbortSignal | undefined, run: (lock: Lock) => Promise<Result>): Promise<Result> {
    const left = new Promise<never>((_, reject) => {
      signal?.addEventListener("abort", () => { reject(new DOMException("left", "AbortError")); }, { once: true });
    });
    await Promise.race([before, left]);
    this.held.add(name);
    try {
      return await run({ name, mode: "exclusive" });
    } finally {
      this.held.delete(name);
    }
  }
}

/** A tab that follows until it is closed. */
class Tab {
  state = "asking";
  readonly stop = new AbortController();
  readonly done: Promise<void>;

  constructor(locks: LockManager) {
    const work = (): Promise<void> => {
      this.state = "following";
      return new Promise((resolve) => { this.stop.signal.addEventListener("abort", () => { resolve(); }); });
    };
    this.done = runInSlot(locks, work, this.stop.signal, () => { this.state = "waiting"; });
  }

  async leave(): Promise<void> {
    this.stop.abort();
    await this.done;
  }
}

const settle = (): Promise<void> => new Promise((resolve) => { setTimeout(resolve, 0); });

test("only a few tabs follow, and a waiting one gets the slot that becomes free", async () => {
  const locks = new Locks() as unknown as LockManager;
  const tabs: Tab[] = [];
  for (let count = 0; count < MAX_STREAMS + 2; count += 1) {
    tabs.push(new Tab(locks));
    await settle();
  }
  const first = tabs.map((tab) => tab.state);

  await tabs[1]?.leave();
  await settle();

  expect(first).toEqual([...Array.from({ length: MAX_STREAMS }, () => "following"), "waiting", "waiting"]);
  expect(tabs.slice(MAX_STREAMS).map((tab) => tab.state)).toEqual(["following", "waiting"]);
  for (const tab of tabs.toReversed()) await tab.leave();
});

test.each(["at once", "while it waits"])("a tab whose browser refuses locks %s follows without a slot", async (when) => {
  const refusing = {
    request: async (_: string, options: LockOptions, run: (lock: null) => Promise<unknown>): Promise<unknown> => {
      if (options.ifAvailable === true && when === "while it waits") return run(null);
      await settle();
      throw new DOMException("The request was denied.", "SecurityError");
    },
  };
  const tab = new Tab(refusing as unknown as LockManager);

  await vi.waitFor(() => { expect(tab.state).toBe("following"); });
  await tab.leave();
});

test("a tab that is closed while it waits never follows", async () => {
  const locks = new Locks() as unknown as LockManager;
  const tabs: Tab[] = [];
  for (let count = 0; count < MAX_STREAMS + 1; count += 1) {
    tabs.push(new Tab(locks));
    await settle();
  }
  const last = tabs[MAX_STREAMS]!;

  await last.leave();
  for (const tab of tabs.slice(0, MAX_STREAMS)) await tab.leave();

  expect(last.state).toBe("waiting");
});
