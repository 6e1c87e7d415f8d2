/**
 * The credential of this tab. It lives as long as the tab and is never stored where another tab or a file could read
 * it.
 */
import type { Scope } from "../api";

const PREFIX = "everturn.credential.";
/** No known credential is longer; longer text was pasted by mistake. */
export const MAX_CHARS = 16_000;

export function loadCredential(storage: Storage, scope: Scope): string | undefined {
  return storage.getItem(keyOf(scope)) ?? undefined;
}

export function saveCredential(storage: Storage, scope: Scope, credential: string): void {
  storage.setItem(keyOf(scope), credential);
}

export function forgetCredential(storage: Storage, scope: Scope): void {
  storage.removeItem(keyOf(scope));
}

/** Cleans a pasted credential: without surrounding blanks and without the word Bearer. Null if it cannot be one. */
export function readCredential(pasted: string): string | null {
  const text = pasted.trim().replace(/^(?:authorization:\s*)?bearer\s+/i, "");
  return text.length <= MAX_CHARS && /^[!-~]+$/.test(text) ? text : null;
}

function keyOf({ tenant, project }: Scope): string {
  return `${PREFIX}${tenant}/${project}`;
}
