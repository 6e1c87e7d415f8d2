/** What is read from the server is kept for a while; a credential that is taken no more is asked for again. */
import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { useMemo } from "react";
import type { JSX, ReactNode } from "react";

import { ProblemError } from "../api";
import { releaseForgotten } from "../files/useFile";
import { useSession } from "../session/context";

const KEPT_MS = 5 * 60_000;

export function Queries({ children }: { children: ReactNode }): JSX.Element {
  const { backend, expire } = useSession();
  const client = useMemo(() => buildClient(expire), [expire]);
  // Another person's answers are not for this one: a new access has a new memory.
  return <QueryClientProvider key={keyOf(backend)} client={client}>{children}</QueryClientProvider>;
}

function buildClient(expire: () => void): QueryClient {
  const onError = (error: Error): void => {
    if (error instanceof ProblemError && error.status === 401) expire();
  };
  const queryCache = new QueryCache({ onError });
  releaseForgotten(queryCache);
  return new QueryClient({
    queryCache,
    // The API library repeats what may be repeated.
    defaultOptions: { queries: { retry: false, gcTime: KEPT_MS, refetchOnWindowFocus: true } },
  });
}

const keys = new WeakMap<object, number>();
let lastKey = 0;

function keyOf(access: object): number {
  const known = keys.get(access) ?? (lastKey += 1);
  keys.set(access, known);
  return known;
}
