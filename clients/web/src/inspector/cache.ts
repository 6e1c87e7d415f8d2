/** Names for the parts of a request, and how a prefix cache could treat them. */
import type { ContextSegment, TurnView } from "../api";

type Cache = ContextSegment["cache"];

export const CACHE_WORDS: Readonly<Record<Cache, { name: string; why: string }>> = {
  read: { name: "Read from the cache", why: "The previous call began with the same parts, up to a cache point." },
  write: { name: "Written to the cache", why: "It is new and lies before the last cache point of this request, so the next call can read it." },
  none: { name: "Not cached", why: "It comes after the last cache point and is rebuilt for each call." },
  unknown: { name: "Possibly cached", why: "This is the first call for a message, so there is no earlier call to compare with." },
};

const ORDER: readonly Cache[] = ["read", "write", "unknown", "none"];
const ORIGINS: Readonly<Record<ContextSegment["origin"], string>> = {
  system: "Instructions",
  block: "Entry",
  media: "File content",
  tail: "Current state",
  call: "Tool call",
  tools: "Tools",
};

/** Tokens by cache state, in the order of a request; empty states are left out. */
export function sumByCache(segments: readonly ContextSegment[]): readonly { cache: Cache; tokens: number }[] {
  return ORDER.map((cache) => ({
    cache,
    tokens: segments.filter((segment) => segment.cache === cache).reduce((sum, segment) => sum + segment.tokens, 0),
  })).filter(({ tokens }) => tokens > 0);
}

const TURN_REF = /^([a-z]{2}):(?:.*?)(turn_[0-9A-Za-z-]+)\.(.+)$/;
const KINDS: Readonly<Record<string, string>> = { fi: "File", tc: "Tool call", so: "Source", su: "Summary", ws: "Working summary" };
/** Names for the parts of a timeline; other parts are shown by their own name. */
const PART_NAMES: readonly (readonly [pattern: RegExp, name: string])[] = [
  [/^user\.prompt$/, "Your message"],
  [/^(?:user\.)?attachments?[./](.+)$/, "Attachment $1"],
  [/^external\.(.+)$/, "Added message $1"],
  [/^assistant\.completion(.*)$/, "Answer$1"],
  [/^react\.notes\.(.+)$/, "Note $1"],
  [/^react\.plan\.(.+)$/, "Plan $1"],
  [/^react\.turn\.index$/, "Message index"],
  [/^round\.0\.(.+)$/, "Message $1"],
  [/^round\.(\d+)\.(.+)$/, "Call $1: $2"],
];

const CALL_PLACE = /^(call_[0-9A-Za-z-]+)\.(call|result)$/;
const ID = / (?:[a-z]+_)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
/** The last characters of an id, enough to distinguish it. */
const ID_CHARS = 6;

/** Tool names by call id. */
export type ToolNames = ReadonlyMap<string, string>;

export function findToolNames(turns: readonly TurnView[]): ToolNames {
  return new Map(
    turns.flatMap(({ steps, approvals }) => [
      ...approvals.map(({ call_id, tool_id }) => [call_id, tool_id] as const),
      ...steps.flatMap(({ step, tool_id }) => (tool_id === undefined ? [] : [[step, tool_id] as const])),
    ]),
  );
}

/** Describes a part in words where possible, the distinguishing word first, without ids. */
export function nameSegment(segment: ContextSegment, turnId: string, tools: ToolNames): string {
  const { origin, ref } = segment;
  if (ref === undefined) return ORIGINS[origin];
  const found = TURN_REF.exec(ref);
  const [, kind = "", turn, place = ""] = found ?? [];
  if (found === null) return `${ORIGINS[origin]} ${ref}`;
  const known = PART_NAMES.find(([pattern]) => pattern.test(place));
  const name =
    nameCall(place, tools) ??
    (known === undefined ? `${KINDS[kind] ?? ORIGINS[origin]} ${place}` : place.replace(known[0], known[1])).replace(ID, "");
  return turn === turnId ? name : `${name} (earlier)`;
}

function nameCall(place: string, tools: ToolNames): string | undefined {
  const [, id = "", part] = CALL_PLACE.exec(place) ?? [];
  if (id === "") return undefined;
  return `${part === "result" ? "Result" : "Call"} of ${tools.get(id) ?? `tool call …${id.slice(-ID_CHARS)}`}`;
}
