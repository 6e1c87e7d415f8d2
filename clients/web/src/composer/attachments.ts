/** The files of the next message: which were chosen, and which the server rejected. */
import { ProblemError } from "../api";
import type { MessageLimits } from "../api";
import { escapeDirectionControls } from "../ui/invisibleCharacters";
import { formatBytes } from "../ui/format";

/** Used until the server has reported its limits. */
export const MAX_FILES = 20;
/** What a multipart message needs in addition to the bytes of its files. */
const PART_BYTES = 1_000;
/** How much of a file is read to check that it is text; the server reads more. */
const HEAD_BYTES = 65_536;

export interface Attachment {
  readonly id: string;
  readonly file: File;
  /** Why the server rejected it; empty if it did not. */
  readonly refusal: string;
}

/** The server's reason for each rejected file. */
export type Refusals = ReadonlyMap<File, string>;

export interface Added {
  readonly attachments: readonly Attachment[];
  /** Which files were left out and why; empty if none. */
  readonly problem: string;
}

/**
 * Adds files; a file that is already attached is added only once. Files over a limit of size or number are left out and
 * named. `limits` is null while unknown; the server checks them in any case.
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
    else if (attachments.length >= maxFiles) tooMany.push(escapeDirectionControls(file.name));
    else attachments.push({ id: makeId(), file, refusal: "" });
  }
  if (tooMany.length > 0) problems.push(`You can attach up to ${maxFiles} files. Not attached: ${tooMany.join(", ")}.`);
  return { attachments, problem: problems.join(" ") };
}

/** Why the server would reject a file beside others of `sum` bytes; empty if nothing is known against it. */
function checkSize(file: File, sum: number, limits: MessageLimits): string {
  const name = escapeDirectionControls(file.name);
  if (file.size === 0) return `${name} is empty.`;
  const max = maxBytesOf(file, limits);
  if (file.size > max) return `${name} is too large (${formatBytes(file.size)}). The limit is ${formatBytes(max)}.`;
  if (sum + file.size + PART_BYTES > limits.message_bytes) return `${name} was not attached: all files together can be at most ${formatBytes(limits.message_bytes)}.`;
  return "";
}

/** The server goes by the content and detects a misleading name. */
function maxBytesOf(file: File, limits: MessageLimits): number {
  return findFileType(file, limits)?.max_bytes ?? Math.max(...limits.file_types.map((type) => type.max_bytes));
}

/** The media type for the name of a file; text files have no fixed extensions. */
function findFileType(file: File, limits: MessageLimits): MessageLimits["file_types"][number] | undefined {
  const extension = extensionOf(file.name);
  return limits.file_types.find(({ extensions }) => extensions.includes(extension));
}

/** Like the server: with the dot, in lower case, empty if the name has none. */
function extensionOf(name: string): string {
  return /[^.](\.[^. ]{1,15})$/.exec(name)?.[1]?.toLowerCase() ?? "";
}

/**
 * Why the server would reject the type of a file; empty if nothing is known against it. The server checks images and
 * documents. The beginning of any other file is checked here and must be text.
 */
export async function checkType(file: File, limits: MessageLimits): Promise<string> {
  if (file.size === 0 || findFileType(file, limits) !== undefined || limits.zeros_in_text.includes(extensionOf(file.name))) return "";
  let head: Uint8Array;
  try {
    head = new Uint8Array(await file.slice(0, HEAD_BYTES).arrayBuffer());
  } catch {
    return `${escapeDirectionControls(file.name)} can’t be read.`;
  }
  const isUtf16 = (head[0] === 0xff && head[1] === 0xfe) || (head[0] === 0xfe && head[1] === 0xff);
  if (isUtf16 || !head.includes(0)) return "";
  const names = limits.file_types.flatMap(({ extensions }) => extensions.slice(0, 1)).map((extension) => extension.slice(1)).join(", ");
  return `${escapeDirectionControls(file.name)} can’t be attached. Supported formats: text, ${names}.`;
}

/** Why the server would reject the length of a text; empty if it would not. */
export function checkLength(text: string, limits: MessageLimits | null): string {
  if (limits === null || text.length <= limits.text_chars || Array.from(text).length <= limits.text_chars) return "";
  return `The message is too long: it can have up to ${limits.text_chars.toLocaleString("en")} characters. Attach the text as a file instead.`;
}

/** The rejected files with their reasons. The server refers to each file by its position in the message. */
export function findRefusals(error: unknown, sent: readonly File[]): Refusals {
  const fields = error instanceof ProblemError ? error.fields : [];
  return new Map(
    fields.flatMap(({ field, message }) => {
      const file = sent[Number(/^files\.(\d+)$/.exec(field)?.[1])];
      return file === undefined ? [] : [[file, message] as const];
    }),
  );
}

/** Attaches the rejections to their files and removes those of an earlier attempt. */
export function markRefused(present: readonly Attachment[], refusals: Refusals): readonly Attachment[] {
  return present.map((attachment) => ({ ...attachment, refusal: refusals.get(attachment.file) ?? "" }));
}

/** Images from the clipboard have no names of their own and would all be called the same. */
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
