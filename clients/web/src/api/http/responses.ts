// Reads response bodies, up to a limit of bytes.
import { InvalidResponse, type ProblemError, Unreachable, buildProblem } from "./errors";

const MAX_RESPONSE_BYTES = 64 * 1024 * 1024;
const MAX_FILE_BYTES = 512 * 1024 * 1024;

export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly retryAfter: string | null;
}

export async function readResponse(response: Response): Promise<Answer> {
  const text = await new Blob(await readParts(response, MAX_RESPONSE_BYTES)).text();
  return { status: response.status, text, retryAfter: response.headers.get("retry-after") };
}

/** The content of a file, with its own media type. */
export async function readContent(response: Response): Promise<Blob> {
  const parts = await readParts(response, MAX_FILE_BYTES);
  return new Blob(parts, { type: response.headers.get("content-type") ?? "" });
}

export async function readProblem(response: Response): Promise<ProblemError> {
  const { status, text, retryAfter } = await readResponse(response);
  return buildProblem(status, text, retryAfter);
}

/** The bytes of the body. Raises InvalidResponse above `maxBytes`. */
async function readParts(response: Response, maxBytes: number): Promise<BlobPart[]> {
  const parts: BlobPart[] = [];
  let taken = 0;
  const reader = response.body?.getReader();
  while (reader !== undefined) {
    const { done, value } = await readOrFail(reader);
    if (done) break;
    taken += value.byteLength;
    if (taken > maxBytes) {
      await reader.cancel();
      throw new InvalidResponse(`it is larger than ${maxBytes} bytes`);
    }
    parts.push(value);
  }
  return parts;
}

type Read = Awaited<ReturnType<ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>["read"]>>;

/** A connection that breaks while the body is read counts as no response. */
export async function readOrFail(reader: ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>): Promise<Read> {
  try {
    return await reader.read();
  } catch (error) {
    if (error instanceof DOMException) throw error;
    throw new Unreachable(error);
  }
}
