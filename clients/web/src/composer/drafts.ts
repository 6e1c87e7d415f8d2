/** Unsent texts, kept for this tab, so that they survive a reload or a visit to another conversation. */
import type { Scope } from "../api";

const PREFIX = "everturn.draft.";
const MAX_CHARS = 200_000;

export function loadDraft(storage: Storage, scope: Scope, conversationId: string): string {
  return storage.getItem(prefixOf(scope) + conversationId) ?? "";
}

/** Store a draft, or remove it when it is empty. One that does not fit into the storage is not kept. */
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
    // The storage is full. The text is still in its field.
    storage.removeItem(key);
  }
}

/** Remove all drafts of a project: the next person to sign in may be someone else. */
export function forgetDrafts(storage: Storage, scope: Scope): void {
  const prefix = prefixOf(scope);
  const keys = Array.from({ length: storage.length }, (_, at) => storage.key(at) ?? "");
  for (const key of keys.filter((each) => each.startsWith(prefix))) storage.removeItem(key);
}

function prefixOf({ tenant, project }: Scope): string {
  return `${PREFIX}${encodeURIComponent(tenant)}/${encodeURIComponent(project)}/`;
}
