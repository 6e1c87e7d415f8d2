/** Text that is inserted into the message field from elsewhere on the page, not typed. */

/** Each object is inserted once. */
export interface Insertion {
  readonly text: string;
}

/** Replaces an empty draft, or goes below an existing one. */
export function insertText(draft: string, inserted: string): string {
  return draft.trim() === "" ? inserted : `${draft.trimEnd()}\n\n${inserted}`;
}

/** What remains in the field after a message was sent: text that was inserted while it was being sent. */
export function removeSent(draft: string, sent: string): string {
  return draft.startsWith(sent) ? draft.slice(sent.length).trimStart() : draft;
}
