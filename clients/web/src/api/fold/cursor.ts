// A position in a conversation's event stream, written `<fence>-<n>`; `0-0` is before the first event.
export interface Cursor {
  readonly fence: bigint;
  readonly n: bigint;
}

export const ORIGIN: Cursor = { fence: 0n, n: 0n };
const WRITTEN = /^([0-9]{1,19})-([0-9]{1,19})$/;
const MAX = 1n << 63n;

/** Null for text that is not exactly a cursor or has a number of more than 63 bits. */
export function tryParseCursor(text: string | undefined): Cursor | null {
  const [, fence, n] = WRITTEN.exec(text ?? "") ?? [];
  if (fence === undefined || n === undefined) return null;
  const cursor = { fence: BigInt(fence), n: BigInt(n) };
  return cursor.fence < MAX && cursor.n < MAX ? cursor : null;
}

export function isAfter(one: Cursor, other: Cursor): boolean {
  return one.fence > other.fence || (one.fence === other.fence && one.n > other.n);
}

export function formatCursor(cursor: Cursor): string {
  return `${cursor.fence.toString()}-${cursor.n.toString()}`;
}
