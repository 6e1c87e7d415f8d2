// What a server has answered, read up to a limit of bytes.
import { BadAnswer, type ProblemError, Unreachable, buildProblem } from "./errors";

const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
const MAX_FILE_BYTES = 512 * 1024 * 1024;

export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly retryAfter: string | null;
}

export async function readAnswer(response: Response): Promise<Answer> {
  const text = await new Blob(await readParts(response, MAX_ANSWER_BYTES)).text();
  return { status: response.status, text, retryAfter: response.headers.get("retry-after") };
}

/** The content of a file, of its own type. */
export async function readContent(response: Response): Promise<Blob> {
  const parts = await readParts(response, MAX_FILE_BYTES);
  return new Blob(parts, { type: response.headers.get("content-type") ?? "" });
}

export async function readProblem(response: Response): Promise<ProblemError> {
  const { status, text, retryAfter } = await readAnswer(response);
  return buildProblem(status, text, retryAfter);
}

/** The body's bytes as they came. Raises BadAnswer above `maxBytes`. */
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
      throw new BadAnswer(`it has more than ${maxBytes} bytes`);
    }
    parts.push(value);
  }
  return parts;
}

type Read = Awaited<ReturnType<ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>["read"]>>;

/** A connection that breaks off in the body is as good as none. */
export async function readOrFail(reader: ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>): Promise<Read> {
  try {
    return await reader.read();
  } catch (error) {
    if (error instanceof DOMException) throw error;
    throw new Unreachable(error);
  }
}
