/** Text that comes into the message field from elsewhere on the page, and not from the keyboard. */

/** Each object is inserted once. */
export interface Insertion {
  readonly text: string;
}

/** In place of an empty draft, or below one that is already written. */
export function insertText(draft: string, inserted: string): string {
  return draft.trim() === "" ? inserted : `${draft}\n\n${inserted}`;
}

/** What is left in the field when a message has been sent: what was inserted while it was on its way. */
export function removeSent(draft: string, sent: string): string {
  return draft.startsWith(sent) ? draft.slice(sent.length).trimStart() : draft;
}
