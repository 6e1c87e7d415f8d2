// Idempotency keys.

const KEY_BYTES = 16;

/** A new key, which nobody guesses. `randomUUID` is not there in a page that came without TLS. */
export function makeKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(KEY_BYTES));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
