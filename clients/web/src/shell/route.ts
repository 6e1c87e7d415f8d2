/** Where the page is, as its fragment says it: `#/conv_1`, or with a tenant and a project `#/acme/one/conv_1`. */
import type { Scope } from "../api";

export interface Route {
  readonly scope: Scope;
  /** Null where a conversation begins. */
  readonly conversationId: string | null;
}

export const DEFAULT_SCOPE: Scope = { tenant: "default", project: "default" };

/** Anything that is no place of ours is the beginning. */
export function readRoute(fragment: string): Route {
  const parts = fragment.replace(/^#\/?/, "").split("/").filter((part) => part !== "").map(tryDecode);
  if (parts.some((part) => part === null)) return { scope: DEFAULT_SCOPE, conversationId: null };
  const [first = null, second, third = null] = parts;
  if (first === null || second === undefined || second === null) return { scope: DEFAULT_SCOPE, conversationId: first };
  return { scope: { tenant: first, project: second }, conversationId: third };
}

export function writeRoute({ scope, conversationId }: Route): string {
  const isDefault = scope.tenant === DEFAULT_SCOPE.tenant && scope.project === DEFAULT_SCOPE.project;
  const parts = [...(isDefault ? [] : [scope.tenant, scope.project]), ...(conversationId === null ? [] : [conversationId])];
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

function tryDecode(part: string): string | null {
  try {
    return decodeURIComponent(part);
  } catch {
    // A fragment that somebody wrote by hand.
    return null;
  }
}
