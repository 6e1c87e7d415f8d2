// Errors of the API client. Every message is a sentence for the user.
import type { ProblemDetails } from "../types";

/** The type of the problem that the agent does not exist, or may not be used by the caller. */
export const UNKNOWN_AGENT = "urn:everturn:problem:unknown-bundle";

export interface FieldError {
  readonly field: string;
  readonly message: string;
}

/** The server rejected the request: RFC 9457 problem details. `type` is stable. */
export class ProblemError extends Error {
  readonly type: string;
  readonly title: string;
  readonly detail: string;
  readonly status: number;
  readonly fields: readonly FieldError[];
  /** `Retry-After` of the response, in seconds. */
  readonly retryAfterS: number | undefined;

  constructor(problem: ProblemDetails, retryAfterS?: number) {
    super(describeProblem(problem));
    this.name = "ProblemError";
    this.type = problem.type;
    this.title = problem.title;
    this.detail = problem.detail;
    this.status = problem.status;
    this.fields = problem.errors ?? [];
    this.retryAfterS = retryAfterS;
  }
}

/** There was no response: the network or the server is down. */
export class Unreachable extends Error {
  constructor(cause?: unknown) {
    super("The server is not responding.", { cause });
    this.name = "Unreachable";
  }
}

/** A response that this client cannot read. */
export class InvalidResponse extends Error {
  constructor(what: string, cause?: unknown) {
    super(`The server’s response can’t be read: ${what}.`, { cause });
    this.name = "InvalidResponse";
  }
}

function describeProblem(problem: ProblemDetails): string {
  const fields = (problem.errors ?? []).map((each) => `${each.field}: ${each.message}`).join("; ");
  // A field's message often repeats the detail; show it only once.
  const detail = fields.includes(problem.detail) ? "" : problem.detail;
  const parts = [problem.title, detail, fields].filter((part) => part !== "").map((part) => part.replace(/\.+$/, ""));
  return `${parts.join(". ")}.`;
}

/** The problem in a response. A response of a proxy has only a status. */
export function buildProblem(status: number, text: string, retryAfter: string | null): ProblemError {
  const found = tryReadProblem(text);
  const unknown = { type: "about:blank", title: `The server responded with status ${status}`, detail: "" };
  return new ProblemError(found ?? { ...unknown, status }, tryReadDelay(retryAfter));
}

function tryReadProblem(text: string): ProblemDetails | null {
  try {
    const body: unknown = JSON.parse(text);
    return isProblem(body) ? body : null;
  } catch {
    return null; // not JSON, so not a problem document
  }
}

function isProblem(body: unknown): body is ProblemDetails {
  if (typeof body !== "object" || body === null) return false;
  const { type, title, status, detail } = body as Partial<Record<string, unknown>>;
  return typeof type === "string" && typeof title === "string" && typeof status === "number" && typeof detail === "string";
}

/** Seconds. Only whole numbers: our servers send no dates. */
function tryReadDelay(text: string | null): number | undefined {
  return text !== null && /^[0-9]{1,6}$/.test(text) ? Number(text) : undefined;
}
