// Who of all tabs of a browser follows a conversation: over HTTP/1.1 each that does keeps a connection for itself.

/** A browser opens six connections to a server, for all its tabs together; what is left is for everything else. */
export const PLACES = 4;

export interface Places {
  /** Runs `work` in a place; calls `onWait` where none is free, and waits for one until `stop` is aborted. */
  run(work: () => Promise<void>, stop: AbortSignal, onWait: () => void): Promise<void>;
}

export const browserPlaces: Places = {
  run: (work, stop, onWait) => {
    // Pages that did not come encrypted have no locks.
    const locks = navigator.locks as LockManager | undefined;
    return locks === undefined || hasOneConnectionForAll() ? work() : runInPlace(locks, work, stop, onWait);
  },
};

/** As `Places.run`, with these locks. Where the browser refuses them, the work is done without a place. */
export async function runInPlace(locks: LockManager, work: () => Promise<void>, stop: AbortSignal, onWait: () => void): Promise<void> {
  const begun: Promise<void>[] = [];
  const begin = (): Promise<void> => {
    const working = work();
    begun.push(working);
    return working;
  };
  try {
    await runInLock(locks, begin, stop, onWait);
  } catch (error) {
    // Such as in a page that may keep nothing. What failed may also be the work, which is not done twice.
    if (begun.length > 0) throw error;
    if (!stop.aborted) await begin();
  }
}

async function runInLock(locks: LockManager, work: () => Promise<void>, stop: AbortSignal, onWait: () => void): Promise<void> {
  const names = Array.from({ length: PLACES }, (_, at) => `everturn.stream.${at + 1}`);
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

/** Asks for all places, works in the first that comes, and lets go of the others. */
async function runInFirst(locks: LockManager, names: readonly string[], work: () => Promise<void>, stop: AbortSignal): Promise<void> {
  const others = new AbortController();
  const signal = AbortSignal.any([stop, others.signal]);
  const ask = async (name: string): Promise<void> => {
    await locks.request(name, { signal }, async () => {
      if (signal.aborted) return;
      others.abort();
      await work();
    });
  };
  const asked = await Promise.allSettled(names.map(ask));
  const failed = asked.find((each) => each.status === "rejected" && !isAbort(each.reason));
  if (failed?.status === "rejected") throw failed.reason;
}

function isAbort(reason: unknown): boolean {
  return reason instanceof DOMException && reason.name === "AbortError";
}

/** HTTP/2 and later carry all requests over one connection. */
function hasOneConnectionForAll(): boolean {
  const [page] = performance.getEntriesByType("navigation");
  return page instanceof PerformanceNavigationTiming && /^h[23]/.test(page.nextHopProtocol);
}
