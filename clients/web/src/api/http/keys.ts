// Idempotency keys.

const KEY_BYTES = 16;

/** A new, unguessable key. `randomUUID` does not exist on pages that were loaded without TLS. */
export function makeKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(KEY_BYTES));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
