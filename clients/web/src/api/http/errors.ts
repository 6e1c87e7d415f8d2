// What can go wrong between this page and the server. Every message is a sentence for the person.
import type { ProblemDetails } from "../types";

export interface FieldError {
  readonly field: string;
  readonly message: string;
}

/** The server refused the request: RFC 9457 problem details. `type` is stable. */
export class ProblemError extends Error {
  readonly type: string;
  readonly title: string;
  readonly detail: string;
  readonly status: number;
  readonly fields: readonly FieldError[];
  /** When the server says that trying again makes sense, in seconds from now. */
  readonly retryAfterS: number | undefined;

  constructor(problem: ProblemDetails, retryAfterS?: number) {
    super(sayProblem(problem));
    this.name = "ProblemError";
    this.type = problem.type;
    this.title = problem.title;
    this.detail = problem.detail;
    this.status = problem.status;
    this.fields = problem.errors ?? [];
    this.retryAfterS = retryAfterS;
  }
}

/** No answer came: the network is cut, or the server is away. */
export class Unreachable extends Error {
  constructor(cause?: unknown) {
    super("The server is not responding.", { cause });
    this.name = "Unreachable";
  }
}

/** An answer that this client can't read. */
export class BadAnswer extends Error {
  constructor(what: string, cause?: unknown) {
    super(`The server's response can't be read: ${what}.`, { cause });
    this.name = "BadAnswer";
  }
}

function sayProblem(problem: ProblemDetails): string {
  const fields = (problem.errors ?? []).map((each) => `${each.field}: ${each.message}`).join("; ");
  // A field's message often is the detail; a reader should meet it once.
  const detail = fields.includes(problem.detail) ? "" : problem.detail;
  const told = [problem.title, detail, fields].filter((part) => part !== "").map((part) => part.replace(/\.+$/, ""));
  return `${told.join(". ")}.`;
}

/** The problem that an answer is; one from something between us and the server has its status only. */
export function buildProblem(status: number, text: string, retryAfter: string | null): ProblemError {
  const found = tryReadProblem(text);
  const told = { type: "about:blank", title: `The server responded with status ${status}`, detail: "" };
  return new ProblemError(found ?? { ...told, status }, tryReadDelay(retryAfter));
}

function tryReadProblem(text: string): ProblemDetails | null {
  try {
    const body: unknown = JSON.parse(text);
    return isProblem(body) ? body : null;
  } catch {
    return null; // no JSON is no problem document
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
