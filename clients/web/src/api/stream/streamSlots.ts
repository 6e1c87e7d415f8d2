// Limits how many tabs of a browser hold a stream: over HTTP/1.1 each stream occupies a connection.

/** Browsers open six connections per server for all tabs together; the others remain for requests. */
export const MAX_STREAMS = 4;

export interface StreamSlots {
  /** Runs `work` in a slot. Calls `onWait` if none is free, and waits for one until `stop` is aborted. */
  run(work: () => Promise<void>, stop: AbortSignal, onWait: () => void): Promise<void>;
}

export const browserSlots: StreamSlots = {
  run: (work, stop, onWait) => {
    // Pages that were loaded without TLS have no locks.
    const locks = navigator.locks as LockManager | undefined;
    return locks === undefined || hasOneConnectionForAll() ? work() : runInSlot(locks, work, stop, onWait);
  },
};

/** Like `StreamSlots.run`, with these locks. If the browser refuses them, the work runs without a slot. */
export async function runInSlot(locks: LockManager, work: () => Promise<void>, stop: AbortSignal, onWait: () => void): Promise<void> {
  const started: Promise<void>[] = [];
  const start = (): Promise<void> => {
    const working = work();
    started.push(working);
    return working;
  };
  try {
    await runInLock(locks, start, stop, onWait);
  } catch (error) {
    // For example in a page without storage access. If `work` itself failed, do not run it twice.
    if (started.length > 0) throw error;
    if (!stop.aborted) await start();
  }
}

async function runInLock(locks: LockManager, work: () => Promise<void>, stop: AbortSignal, onWait: () => void): Promise<void> {
  const names = Array.from({ length: MAX_STREAMS }, (_, at) => `everturn.stream.${at + 1}`);
  for (const name of names) {
    if (await tryRun(locks, name, work)) return;
  }
  if (stop.aborted) return;
  onWait();
  await runInFirst(locks, names, work, stop);
}

async function tryRun(locks: LockManager, name: string, work: () => Promise<void>): Promise<boolean> {
  return await locks.request(name, { ifAvailable: true }, async (lock) => {
    if (lock !== null) await work();
    return lock !== null;
  });
}

/** Requests all slots, runs `work` in the first one that is granted, and releases the others. */
async function runInFirst(locks: LockManager, names: readonly string[], work: () => Promise<void>, stop: AbortSignal): Promise<void> {
  const others = new AbortController();
  const signal = AbortSignal.any([stop, others.signal]);
  const requestLock = async (name: string): Promise<void> => {
    await locks.request(name, { signal }, async () => {
      if (signal.aborted) return;
      others.abort();
      await work();
    });
  };
  const outcomes = await Promise.allSettled(names.map(requestLock));
  const failed = outcomes.find((each) => each.status === "rejected" && !isAbort(each.reason));
  if (failed?.status === "rejected") throw failed.reason;
}

function isAbort(reason: unknown): boolean {
  return reason instanceof DOMException && reason.name === "AbortError";
}

/** HTTP/2 and later multiplex all requests over one connection. */
function hasOneConnectionForAll(): boolean {
  const [page] = performance.getEntriesByType("navigation");
  return page instanceof PerformanceNavigationTiming && /^h[23]/.test(page.nextHopProtocol);
}
