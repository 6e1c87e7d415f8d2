/** The files that go with the next message: which were chosen, and which the server refused. */
import { ProblemError } from "../api";

/** What the server takes in one message; it says so itself where an operator has set less. */
export const MAX_FILES = 20;

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

/** The files with more of them; the same file is taken once, and what is too many is named. */
export function addFiles(present: readonly Attachment[], files: readonly File[], makeId: () => string): Added {
  const fresh = files.filter((file) => !present.some((attachment) => isSame(attachment.file, file)));
  const room = MAX_FILES - present.length;
  const taken = fresh.slice(0, Math.max(0, room)).map((file) => ({ id: makeId(), file, refusal: "" }));
  const left = fresh.slice(taken.length).map((file) => file.name);
  const problem = left.length === 0 ? "" : `A message takes ${MAX_FILES} files. Left out: ${left.join(", ")}.`;
  return { attachments: [...present, ...taken], problem };
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
