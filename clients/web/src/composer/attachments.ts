/** The files that go with the next message: which were chosen, and which the server refused. */
import { ProblemError } from "../api";
import type { MessageLimits } from "../api";
import { showTurning } from "../ui/unseen";
import { sayBytes } from "../ui/wording";

/** Until the server has told its own limits. */
export const MAX_FILES = 20;
/** What the parts of a message take besides the bytes of its files. */
const PART_BYTES = 1_000;
/** What is read of a file to see whether it is text; the server reads more. */
const HEAD_BYTES = 65_536;

export interface Attachment {
  readonly id: string;
  readonly file: File;
  /** Why the server refused it; empty when it did not. */
  readonly refusal: string;
}

/** What the server said of each file that it refused. */
export type Refusals = ReadonlyMap<File, string>;

export interface Added {
  readonly attachments: readonly Attachment[];
  /** What was left out and why; empty when nothing was. */
  readonly problem: string;
}

/**
 * The files with more of them; the same file is taken once. What the server would refuse for its size or number is left
 * out and named; null where its limits are not known, then it says so itself.
 */
export function addFiles(present: readonly Attachment[], files: readonly File[], makeId: () => string, limits: MessageLimits | null = null): Added {
  const attachments = [...present];
  const problems: string[] = [];
  const tooMany: string[] = [];
  const maxFiles = limits?.files ?? MAX_FILES;
  for (const file of files) {
    if (attachments.some((attachment) => isSame(attachment.file, file))) continue;
    const problem = limits === null ? "" : checkSize(file, sumBytes(attachments), limits);
    if (problem !== "") problems.push(problem);
    else if (attachments.length >= maxFiles) tooMany.push(showTurning(file.name));
    else attachments.push({ id: makeId(), file, refusal: "" });
  }
  if (tooMany.length > 0) problems.push(`You can attach up to ${maxFiles} files. Not attached: ${tooMany.join(", ")}.`);
  return { attachments, problem: problems.join(" ") };
}

/** Why the server would refuse a file beside others of `sum` bytes; empty where nothing is known against it. */
function checkSize(file: File, sum: number, limits: MessageLimits): string {
  const name = showTurning(file.name);
  if (file.size === 0) return `${name} is empty.`;
  const max = maxBytesOf(file, limits);
  if (file.size > max) return `${name} is too large: ${sayBytes(file.size)}, the limit is ${sayBytes(max)}.`;
  if (sum + file.size + PART_BYTES > limits.message_bytes) return `${name} does not fit: all files together may have ${sayBytes(limits.message_bytes)}.`;
  return "";
}

/** The server goes by the content; a name that says otherwise is found out there. */
function maxBytesOf(file: File, limits: MessageLimits): number {
  return findFileType(file, limits)?.max_bytes ?? Math.max(...limits.file_types.map((type) => type.max_bytes));
}

/** The type that the name of a file says; text has no names of its own. */
function findFileType(file: File, limits: MessageLimits): MessageLimits["file_types"][number] | undefined {
  const extension = extensionOf(file.name);
  return limits.file_types.find(({ extensions }) => extensions.includes(extension));
}

/** As the server reads it: with its dot, in lower case, and empty where the name has none. */
function extensionOf(name: string): string {
  return /[^.](\.[^. ]{1,15})$/.exec(name)?.[1]?.toLowerCase() ?? "";
}

/**
 * Why the server would refuse a file for what it is; empty where nothing is known against it. What is named as an image or
 * a document is checked there; of all others the beginning is read here, which must be text.
 */
export async function checkType(file: File, limits: MessageLimits): Promise<string> {
  if (file.size === 0 || findFileType(file, limits) !== undefined || limits.zeros_in_text.includes(extensionOf(file.name))) return "";
  let head: Uint8Array;
  try {
    head = new Uint8Array(await file.slice(0, HEAD_BYTES).arrayBuffer());
  } catch {
    return `${showTurning(file.name)} can’t be read.`;
  }
  const isUtf16 = (head[0] === 0xff && head[1] === 0xfe) || (head[0] === 0xfe && head[1] === 0xff);
  if (isUtf16 || !head.includes(0)) return "";
  const names = limits.file_types.flatMap(({ extensions }) => extensions.slice(0, 1)).map((extension) => extension.slice(1)).join(", ");
  return `${showTurning(file.name)} can’t be attached: only text and these formats can be read: ${names}.`;
}

/** Why the server would refuse a text for its length; empty where it would not. */
export function checkLength(text: string, limits: MessageLimits | null): string {
  if (limits === null || text.length <= limits.text_chars || Array.from(text).length <= limits.text_chars) return "";
  return `The message is too long: it can have up to ${limits.text_chars.toLocaleString("en")} characters. Attach the text as a file instead.`;
}

/** Which of the files that were sent the server has refused, and why. It names each by its place in the message. */
export function findRefusals(error: unknown, sent: readonly File[]): Refusals {
  const fields = error instanceof ProblemError ? error.fields : [];
  return new Map(
    fields.flatMap(({ field, message }) => {
      const file = sent[Number(/^files\.(\d+)$/.exec(field)?.[1])];
      return file === undefined ? [] : [[file, message] as const];
    }),
  );
}

/** The refusals at their files; those of an earlier try are taken away. */
export function markRefused(present: readonly Attachment[], refusals: Refusals): readonly Attachment[] {
  return present.map((attachment) => ({ ...attachment, refusal: refusals.get(attachment.file) ?? "" }));
}

/** A picture from the clipboard has no name of its own; several would all be called the same. */
export function namePasted(file: File, number: number): File {
  if (!/^image\.\w+$/.test(file.name)) return file;
  return new File([file], file.name.replace("image", `pasted-${number}`), { type: file.type });
}

export function sumBytes(attachments: readonly Attachment[]): number {
  return attachments.reduce((sum, { file }) => sum + file.size, 0);
}

function isSame(first: File, second: File): boolean {
  return first.name === second.name && first.size === second.size && first.lastModified === second.lastModified;
}
