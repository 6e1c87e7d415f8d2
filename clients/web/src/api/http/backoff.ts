// Time limits of requests and streams, and delays between retries.

export interface Timings {
  /** Until a response is complete. */
  readonly answerMs: number;
  /** Until a file or an export is complete. */
  readonly contentMs: number;
  /** Without any progress of an upload or of its response. */
  readonly uploadSilenceMs: number;
  /** Without a byte on a stream; above the server's heartbeat interval of 10 s. */
  readonly silenceMs: number;
  readonly firstDelayMs: number;
  readonly maxDelayMs: number;
  /** A `Retry-After` is honored up to this; a request that would have to wait longer fails at once. */
  readonly maxAskedMs: number;
  /** How often one request is sent at most. */
  readonly attempts: number;
}

export const TIMINGS: Timings = {
  answerMs: 60_000,
  contentMs: 600_000,
  uploadSilenceMs: 60_000,
  silenceMs: 30_000,
  firstDelayMs: 250,
  maxDelayMs: 10_000,
  maxAskedMs: 30_000,
  attempts: 4,
};

/** Delays that double up to a cap; `random` returns numbers from 0 to 1. */
export class Backoff {
  private readonly timings: Timings;
  private readonly random: () => number;
  private failures = 0;

  constructor(timings: Timings, random: () => number) {
    this.timings = timings;
    this.random = random;
  }

  /** Resets the delay after a success. */
  reset(): void {
    this.failures = 0;
  }

  /** Honors the server's delay and adds a little jitter, so that clients do not all come back at once. */
  nextDelayMs(askedMs?: number): number {
    const { firstDelayMs, maxDelayMs, maxAskedMs } = this.timings;
    const longest = Math.min(maxDelayMs, firstDelayMs * 2 ** Math.min(this.failures, 30));
    this.failures += 1;
    if (askedMs !== undefined) return Math.min(askedMs, maxAskedMs) + this.random() * firstDelayMs;
    return longest * (0.5 + this.random() / 2);
  }
}

/** Resolves after `ms`. Rejects with the signal's reason if it is aborted first. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const leave = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", leave);
      resolve();
    }, ms);
    if (signal?.aborted) leave();
    else signal?.addEventListener("abort", leave, { once: true });
  });
}
