/** What was written and not sent yet, kept for this tab: a reload or a look at another conversation loses nothing. */

const PREFIX = "everturn.draft.";
const MAX_CHARS = 200_000;

export function loadDraft(storage: Storage, conversationId: string): string {
  return storage.getItem(PREFIX + conversationId) ?? "";
}

/** Keep a draft, or forget it when it is empty. One that the storage has no room for is not kept. */
export function saveDraft(storage: Storage, conversationId: string, text: string): void {
  if (text === "" || text.length > MAX_CHARS) {
    storage.removeItem(PREFIX + conversationId);
    return;
  }
  try {
    storage.setItem(PREFIX + conversationId, text);
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    // Full. The text is still in its field.
    storage.removeItem(PREFIX + conversationId);
  }
}
