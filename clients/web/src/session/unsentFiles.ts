/**
 * Files that are attached but not sent, kept for the life of the page: they survive a visit to another conversation and
 * a new sign-in.
 */

/** By conversation, the most recently changed one last. */
export type UnsentFiles = Map<string, readonly File[]>;

/** The number of conversations whose files are kept; beyond it, the least recently changed is dropped. */
export const MAX_CONVERSATIONS = 20;

export function saveUnsentFiles(unsent: UnsentFiles, conversationId: string, files: readonly File[]): void {
  unsent.delete(conversationId);
  if (files.length === 0) return;
  unsent.set(conversationId, files);
  for (const oldest of [...unsent.keys()].slice(0, -MAX_CONVERSATIONS)) unsent.delete(oldest);
}
