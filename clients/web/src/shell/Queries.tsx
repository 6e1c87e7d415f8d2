/** The query cache. A credential that the server no longer accepts leads to the sign-in page. */
import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";
import type { JSX, ReactNode } from "react";

import { ProblemError } from "../api";
import { releaseEvicted } from "../files/useFile";
import { useSession } from "../session/context";

const CACHE_MS = 5 * 60_000;

export function Queries({ children }: { children: ReactNode }): JSX.Element {
  const { expire } = useSession();
  // Each sign-in gets a new cache, because the next person must not see the data of the last one.
  const { client, releaseAll } = useMemo(() => buildClient(expire), [expire]);
  useEffect(() => releaseAll, [releaseAll]);
  return <QueryClientProvider client={client}>{children}</QueryClientProvider>;
}

function buildClient(expire: () => void): { client: QueryClient; releaseAll: () => void } {
  const onError = (error: Error): void => {
    if (error instanceof ProblemError && error.status === 401) expire();
  };
  const queryCache = new QueryCache({ onError });
  const releaseAll = releaseEvicted(queryCache);
  const client = new QueryClient({
    queryCache,
    // The API client retries what is safe to retry.
    defaultOptions: { queries: { retry: false, gcTime: CACHE_MS, refetchOnWindowFocus: true } },
  });
  return { client, releaseAll };
}
