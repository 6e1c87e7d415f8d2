// Single requests: credentials, limits of time and size, and retries.
import { type Answer, readResponse, readContent, readProblem } from "./responses";
import { Backoff, type Timings, pause } from "./backoff";
import { ProblemError, Unreachable, buildProblem } from "./errors";
import { parseJson } from "./json";
import { sendUpload } from "./upload";

const AGAIN_LATER = new Set([429, 502, 503, 504]);

export interface RequestsOptions {
  /** The server's origin; empty for the origin of this page. */
  readonly baseUrl: string;
  /** Returns the current bearer credential; undefined if none is needed. */
  readonly token: () => string | undefined;
  readonly timings: Timings;
  readonly random: () => number;
  readonly fetch: typeof fetch;
}

export interface Upload {
  readonly form: () => FormData;
  /** Called with the share of bytes already sent, from 0 to 1. */
  readonly onProgress?: ((share: number) => void) | undefined;
}

export interface Call {
  readonly method: "GET" | "POST" | "PATCH" | "DELETE";
  readonly path: string;
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly json?: unknown;
  readonly upload?: Upload;
  /** An idempotency key: the call may be retried and is executed once. */
  readonly key?: string;
  /** The answer is foreign content, in which null has a meaning. */
  readonly keepsNulls?: boolean;
  /** A call that changes nothing although it is not a GET. */
  readonly isRead?: boolean;
  readonly abort?: AbortSignal | undefined;
}

/**
 * Raises ProblemError if the server rejects the request, Unreachable without a response, InvalidResponse for an unreadable
 * one.
 */
export class Requests {
  private readonly options: RequestsOptions;

  constructor(options: RequestsOptions) {
    this.options = options;
  }

  /**
   * The JSON of the response. GETs, reads and calls with a key are retried if there is no response or a temporary
   * rejection.
   */
  async send<Body>(call: Call): Promise<Body> {
    const { timings, random } = this.options;
    const mayRepeat = call.method === "GET" || call.isRead === true || call.key !== undefined;
    const backoff = new Backoff(timings, random);
    for (let attempt = 1; ; attempt += 1) {
      const answer = await this.exchange(call).catch((error: unknown) => this.asFailure(error, call));
      if (answer instanceof Object && "text" in answer) return parseJson(answer.text, call.keepsNulls) as Body;
      const isLast = !mayRepeat || attempt >= timings.attempts;
      if (isLast || !this.isWorthRepeating(answer, call, attempt)) throw answer;
      const askedS = answer instanceof ProblemError ? answer.retryAfterS : undefined;
      await pause(backoff.nextDelayMs(askedS === undefined ? undefined : askedS * 1000), call.abort);
    }
  }

  /** The content of a file or an export. */
  async load(path: string, abort?: AbortSignal): Promise<Blob> {
    const limit = AbortSignal.timeout(this.options.timings.contentMs);
    const signal = abort === undefined ? limit : AbortSignal.any([limit, abort]);
    const call: Call = { method: "GET", path, abort };
    try {
      const response = await this.request(call, signal);
      if (!response.ok) throw await readProblem(response);
      return await readContent(response);
    } catch (error) {
      throw this.asFailure(error, call);
    }
  }

  /** A response whose body has not been read; the caller sets its limits. */
  async request(call: Call, signal: AbortSignal | undefined, more: Readonly<Record<string, string>> = {}): Promise<Response> {
    const { fetch } = this.options;
    try {
      return await fetch(this.address(call), {
        method: call.method,
        headers: { ...this.headers(call), ...more },
        body: call.json === undefined ? null : JSON.stringify(call.json),
        cache: "no-store",
        credentials: "omit",
        ...(signal === undefined ? {} : { signal }),
      });
    } catch (error) {
      if (signal?.aborted === true) throw signal.reason;
      throw new Unreachable(error);
    }
  }

  private async exchange(call: Call): Promise<Answer> {
    const answer = call.upload === undefined ? await this.fetchAnswer(call) : await this.sendForm(call, call.upload);
    if (answer.status >= 200 && answer.status < 300) return answer;
    throw buildProblem(answer.status, answer.text, answer.retryAfter);
  }

  private async fetchAnswer(call: Call): Promise<Answer> {
    const limit = AbortSignal.timeout(this.options.timings.answerMs);
    const signal = call.abort === undefined ? limit : AbortSignal.any([limit, call.abort]);
    return readResponse(await this.request(call, signal));
  }

  private sendForm(call: Call, upload: Upload): Promise<Answer> {
    const { timings } = this.options;
    return sendUpload({
      url: this.address(call),
      headers: this.headers(call),
      form: upload.form(),
      silenceMs: timings.uploadSilenceMs,
      onProgress: upload.onProgress,
      abort: call.abort,
    });
  }

  private address({ path, query }: Call): string {
    const present = Object.entries(query ?? {}).filter((pair): pair is [string, string] => pair[1] !== undefined);
    const text = new URLSearchParams(present).toString();
    return `${this.options.baseUrl}${path}${text === "" ? "" : `?${text}`}`;
  }

  private headers({ json, key }: Call): Record<string, string> {
    const token = this.options.token();
    return {
      ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
      ...(json === undefined ? {} : { "Content-Type": "application/json" }),
      ...(key === undefined ? {} : { "Idempotency-Key": key }),
    };
  }

  /** Rethrows the caller's abort and errors that a retry cannot fix. */
  private asFailure(error: unknown, call: Call): ProblemError | Unreachable {
    if (call.abort?.aborted !== true) {
      if (error instanceof ProblemError || error instanceof Unreachable) return error;
      if (error instanceof DOMException && error.name === "TimeoutError") return new Unreachable(error);
    }
    throw error;
  }

  private isWorthRepeating(failure: ProblemError | Unreachable, call: Call, attempt: number): boolean {
    if (failure instanceof Unreachable) return true;
    // A retry may meet its own first attempt, still running, as a conflict.
    if (failure.status === 409) return call.key !== undefined && attempt > 1;
    return AGAIN_LATER.has(failure.status) && (failure.retryAfterS ?? 0) * 1000 <= this.options.timings.maxAskedMs;
  }
}
