/**
 * The route in the fragment of the address: `#/conv_1`, or with a tenant and a project `#/acme/one/conv_1`. With
 * `?turn=turn_1` the conversation opens at that turn.
 */
import type { Scope } from "../api";

export interface Route {
  readonly scope: Scope;
  /** Null for a new conversation. */
  readonly conversationId: string | null;
  /** Null for the end of the conversation. */
  readonly turnId: string | null;
}

export const DEFAULT_SCOPE: Scope = { tenant: "default", project: "default" };

/** The project of an installation that has only one. */
export function isDefaultScope({ tenant, project }: Scope): boolean {
  return tenant === DEFAULT_SCOPE.tenant && project === DEFAULT_SCOPE.project;
}

/** A fragment that is not a route leads to the start page. */
export function readRoute(fragment: string): Route {
  const [path = "", query = ""] = fragment.replace(/^#\/?/, "").split("?");
  const { scope, conversationId } = readPath(path);
  return { scope, conversationId, turnId: conversationId === null ? null : new URLSearchParams(query).get("turn") };
}

function readPath(path: string): Omit<Route, "turnId"> {
  const parts = path.split("/").filter((part) => part !== "").map(tryDecode);
  if (parts.some((part) => part === null)) return { scope: DEFAULT_SCOPE, conversationId: null };
  const [first = null, second, third = null] = parts;
  if (first === null || second === undefined || second === null) return { scope: DEFAULT_SCOPE, conversationId: first };
  return { scope: { tenant: first, project: second }, conversationId: third };
}

export function writeRoute({ scope, conversationId, turnId }: Route): string {
  const parts = [...(isDefaultScope(scope) ? [] : [scope.tenant, scope.project]), ...(conversationId === null ? [] : [conversationId])];
  const query = turnId === null ? "" : `?${new URLSearchParams({ turn: turnId }).toString()}`;
  return `#/${parts.map(encodeURIComponent).join("/")}${query}`;
}

function tryDecode(part: string): string | null {
  try {
    return decodeURIComponent(part);
  } catch {
    // A fragment that was typed by hand.
    return null;
  }
}
