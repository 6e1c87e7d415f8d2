/** The chat inside a page of another site: the ticket in its address, and what the server gives for it. */
import { createContext } from "react";

import { TIMINGS } from "../api";
import { Requests } from "../api/http/requests";

export interface Embedding {
  readonly token: string;
  readonly tenant: string;
  readonly project: string;
  readonly bundle_id: string;
}

/** Whether this is an embedded chat. Pages by others can't be shown in it: all pages around their frame must be ours. */
export const EmbeddedContext = createContext(false);

/** The ticket of an embedded chat, empty if it is missing; null on the ordinary page. */
export function readTicket({ pathname, search }: Pick<Location, "pathname" | "search">): string | null {
  if (!/\/embed\/[^/]+$/.test(pathname)) return null;
  return new URLSearchParams(search).get("ticket") ?? "";
}

/** Uses up the ticket. Raises as all requests. */
export function openEmbedded(ticket: string, ancestors: readonly string[], request: typeof fetch = (address, init) => fetch(address, init)): Promise<Embedding> {
  const requests = new Requests({ baseUrl: "", token: () => ticket, timings: TIMINGS, random: Math.random, fetch: request });
  return requests.send({ method: "POST", path: "/embed/session", json: { ancestors } });
}
