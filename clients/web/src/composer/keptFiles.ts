/** Files that are attached and not sent yet, kept as long as the page: another conversation or a new sign-in loses none. */

/** By conversation, the one that was changed last at the end. */
export type KeptFiles = Map<string, readonly File[]>;

/** Of so many conversations; those of the one that was left alone for longest are let go. */
export const MAX_KEPT = 20;

export function keepFiles(kept: KeptFiles, conversationId: string, files: readonly File[]): void {
  kept.delete(conversationId);
  if (files.length === 0) return;
  kept.set(conversationId, files);
  for (const oldest of [...kept.keys()].slice(0, -MAX_KEPT)) kept.delete(oldest);
}
