/** What was written and not sent yet, kept for this tab: a reload or a look at another conversation loses nothing. */
import type { Scope } from "../api";

const PREFIX = "everturn.draft.";
const MAX_CHARS = 200_000;

export function loadDraft(storage: Storage, scope: Scope, conversationId: string): string {
  return storage.getItem(prefixOf(scope) + conversationId) ?? "";
}

/** Keep a draft, or forget it when it is empty. One that the storage has no room for is not kept. */
export function saveDraft(storage: Storage, scope: Scope, conversationId: string, text: string): void {
  const key = prefixOf(scope) + conversationId;
  if (text === "" || text.length > MAX_CHARS) {
    storage.removeItem(key);
    return;
  }
  try {
    storage.setItem(key, text);
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
    // Full. The text is still in its field.
    storage.removeItem(key);
  }
}

/** Forget all drafts of a project: who signs in next may be somebody else. */
export function forgetDrafts(storage: Storage, scope: Scope): void {
  const prefix = prefixOf(scope);
  const keys = Array.from({ length: storage.length }, (_, at) => storage.key(at) ?? "");
  for (const key of keys.filter((each) => each.startsWith(prefix))) storage.removeItem(key);
}

function prefixOf({ tenant, project }: Scope): string {
  return `${PREFIX}${encodeURIComponent(tenant)}/${encodeURIComponent(project)}/`;
}
