// Single requests: credentials, limits of time and size, and repeating what may be repeated.
import { type Answer, readAnswer, readContent, readProblem } from "./answers";
import { Backoff, type Timings, pause } from "./backoff";
import { ProblemError, Unreachable, buildProblem } from "./errors";
import { parseJson } from "./json";
import { sendUpload } from "./upload";

const AGAIN_LATER = new Set([429, 502, 503, 504]);

export interface RequestsOptions {
  /** The server's origin; empty for the one that this page is from. */
  readonly baseUrl: string;
  /** The bearer credential as it is now; undefined where none is needed. */
  readonly token: () => string | undefined;
  readonly timings: Timings;
  readonly random: () => number;
  readonly fetch: typeof fetch;
}

export interface Upload {
  readonly form: () => FormData;
  /** Called with the share of bytes that has left, from 0 to 1. */
  readonly onProgress?: ((share: number) => void) | undefined;
}

export interface Call {
  readonly method: "GET" | "POST" | "PATCH" | "DELETE";
  readonly path: string;
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly json?: unknown;
  readonly upload?: Upload;
  /** An idempotency key: the call may be repeated and is done once. */
  readonly key?: string;
  /** A call that changes nothing although it is no GET. */
  readonly isRead?: boolean;
  readonly abort?: AbortSignal | undefined;
}

/** Raises ProblemError for refusals, Unreachable for no answer, BadAnswer for an unreadable one. */
export class Requests {
  private readonly options: RequestsOptions;

  constructor(options: RequestsOptions) {
    this.options = options;
  }

  /** The answer's JSON. GETs, reads, and calls with a key are repeated when there is no answer, or one says "later". */
  async send<Body>(call: Call): Promise<Body> {
    const { timings, random } = this.options;
    const mayRepeat = call.method === "GET" || call.isRead === true || call.key !== undefined;
    const backoff = new Backoff(timings, random);
    for (let attempt = 1; ; attempt += 1) {
      const answer = await this.exchange(call).catch((error: unknown) => this.asFailure(error, call));
      if (answer instanceof Object && "text" in answer) return parseJson(answer.text) as Body;
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
      const response = await this.ask(call, signal);
      if (!response.ok) throw await readProblem(response);
      return await readContent(response);
    } catch (error) {
      throw this.asFailure(error, call);
    }
  }

  /** An answer whose body is still to be read; its limits are the caller's. */
  async ask(call: Call, signal: AbortSignal | undefined, more: Readonly<Record<string, string>> = {}): Promise<Response> {
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
    return readAnswer(await this.ask(call, signal));
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
    const asked = Object.entries(query ?? {}).filter((pair): pair is [string, string] => pair[1] !== undefined);
    const text = new URLSearchParams(asked).toString();
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

  /** What the caller gave up is thrown as it is, and so is what repeating does not mend. */
  private asFailure(error: unknown, call: Call): ProblemError | Unreachable {
    if (call.abort?.aborted !== true) {
      if (error instanceof ProblemError || error instanceof Unreachable) return error;
      if (error instanceof DOMException && error.name === "TimeoutError") return new Unreachable(error);
    }
    throw error;
  }

  private isWorthRepeating(failure: ProblemError | Unreachable, call: Call, attempt: number): boolean {
    if (failure instanceof Unreachable) return true;
    // A repeated call meets its own first try, still at work, as a conflict.
    if (failure.status === 409) return call.key !== undefined && attempt > 1;
    return AGAIN_LATER.has(failure.status) && (failure.retryAfterS ?? 0) * 1000 <= this.options.timings.maxAskedMs;
  }
}
