/** What is read from the server is kept for a while; a credential that is taken no more is asked for again. */
import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";
import type { JSX, ReactNode } from "react";

import { ProblemError } from "../api";
import { releaseForgotten } from "../files/useFile";
import { useSession } from "../session/context";

const KEPT_MS = 5 * 60_000;

export function Queries({ children }: { children: ReactNode }): JSX.Element {
  const { expire } = useSession();
  // Another person's answers are not for this one: who signs in has a new memory, and what was there is let go.
  const { client, releaseAll } = useMemo(() => buildClient(expire), [expire]);
  useEffect(() => releaseAll, [releaseAll]);
  return <QueryClientProvider client={client}>{children}</QueryClientProvider>;
}

function buildClient(expire: () => void): { client: QueryClient; releaseAll: () => void } {
  const onError = (error: Error): void => {
    if (error instanceof ProblemError && error.status === 401) expire();
  };
  const queryCache = new QueryCache({ onError });
  const releaseAll = releaseForgotten(queryCache);
  const client = new QueryClient({
    queryCache,
    // The API library repeats what may be repeated.
    defaultOptions: { queries: { retry: false, gcTime: KEPT_MS, refetchOnWindowFocus: true } },
  });
  return { client, releaseAll };
}
