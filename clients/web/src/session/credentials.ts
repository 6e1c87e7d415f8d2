/** The credential of this tab. It is kept as long as the tab lives, and never where another tab or a file could find it. */
import type { Scope } from "../api";

const PREFIX = "everturn.credential.";
/** No known credential is longer; more is something else that was pasted. */
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

/** What was pasted as a header takes it: without blanks around it and without the word Bearer. Null when it can be none. */
export function readCredential(pasted: string): string | null {
  const text = pasted.trim().replace(/^(?:authorization:\s*)?bearer\s+/i, "");
  return text.length <= MAX_CHARS && /^[!-~]+$/.test(text) ? text : null;
}

function keyOf({ tenant, project }: Scope): string {
  return `${PREFIX}${tenant}/${project}`;
}
