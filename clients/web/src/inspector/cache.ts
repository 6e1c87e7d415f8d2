/** What the parts of a request are called, and what a cache of prefixes could do with them. */
import type { ContextSegment } from "../api";

type Cache = ContextSegment["cache"];

export const CACHE_WORDS: Readonly<Record<Cache, { name: string; why: string }>> = {
  read: { name: "Read from the cache", why: "The round before began with the same parts, up to a cache point." },
  write: { name: "Written to the cache", why: "New up to this request’s last cache point, so that the next round can read it." },
  none: { name: "Not cached", why: "It stands behind the last cache point and is made anew each round." },
  unknown: { name: "Maybe cached", why: "The first round of a turn has no round before it to compare with." },
};

const ORDER: readonly Cache[] = ["read", "write", "unknown", "none"];
const ORIGINS: Readonly<Record<ContextSegment["origin"], string>> = {
  system: "Instructions",
  block: "Block",
  media: "File content",
  tail: "State of the turn",
};

/** Tokens by what the cache could do, in the order of a request; what there is none of is left out. */
export function sumByCache(segments: readonly ContextSegment[]): readonly { cache: Cache; tokens: number }[] {
  return ORDER.map((cache) => ({
    cache,
    tokens: segments.filter((segment) => segment.cache === cache).reduce((sum, segment) => sum + segment.tokens, 0),
  })).filter(({ tokens }) => tokens > 0);
}

/** Where a part comes from: its ref where it has one. */
export function nameSegment(segment: ContextSegment): string {
  const origin = ORIGINS[segment.origin];
  return segment.ref === undefined ? origin : `${origin} ${segment.ref}`;
}
