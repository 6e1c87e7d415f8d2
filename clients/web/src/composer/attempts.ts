/**
 * The last message without a known response, kept for this tab. Sent again, also after a reload, it is accepted only
 * once.
 */
import type { Scope } from "../api";
import { loadDraft, saveDraft } from "./drafts";

export interface Attempt {
  readonly text: string;
  readonly kind?: "followup" | "steer";
  readonly bundleId?: string;
  readonly key: string;
}

/** Null if there is none or the stored text is something else. */
export function loadAttempt(storage: Storage, scope: Scope, conversationId: string): Attempt | null {
  const kept = loadDraft(storage, scope, placeOf(conversationId));
  try {
    const found: unknown = kept === "" ? null : JSON.parse(kept);
    return isAttempt(found) ? found : null;
  } catch {
    return null; // other text under the same key
  }
}

/** Store it beside the draft, with which it is removed; null removes it. */
export function saveAttempt(storage: Storage, scope: Scope, conversationId: string, attempt: Attempt | null): void {
  saveDraft(storage, scope, placeOf(conversationId), attempt === null ? "" : JSON.stringify(attempt));
}

function placeOf(conversationId: string): string {
  return `${conversationId}/attempt`;
}

function isAttempt(found: unknown): found is Attempt {
  if (typeof found !== "object" || found === null) return false;
  const { text, key } = found as Partial<Record<string, unknown>>;
  return typeof text === "string" && typeof key === "string";
}
