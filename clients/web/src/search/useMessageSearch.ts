/** Messages that match a search, page by page. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";

import type { SearchHit, SearchHits } from "../api";
import { useBackend } from "../session/context";

export interface MessageSearch {
  hits: readonly SearchHit[];
  /** Whether the hits are missing or still those of the previous search. */
  isBusy: boolean;
  isLoadingMore: boolean;
  error: Error | null;
  hasMore: boolean;
  loadMore: () => Promise<unknown>;
  tryAgain: () => void;
}

const PAGE_HITS = 10;
/** Working summaries and notes belong to the agent: no screen shows them in their place. */
const TARGETS = ["user", "assistant", "attachment"] as const;

/**
 * `search` is not blank; `conversationId` is null for all conversations. A request that is no longer needed is aborted.
 */
export function useMessageSearch(search: string, conversationId: string | null): MessageSearch {
  const backend = useBackend();
  const { data, error, isPending, isPlaceholderData, isFetchingNextPage, hasNextPage, fetchNextPage, refetch } = useInfiniteQuery({
    queryKey: ["messages", search, conversationId],
    // A user who types expects literal matches. A search by meaning would return something for any input.
    queryFn: ({ pageParam: cursor, signal }) => {
      const place = conversationId === null ? {} : { conversation_id: conversationId };
      const page = cursor === undefined ? {} : { cursor };
      return backend.searchTexts({ query: search, limit: PAGE_HITS, targets: TARGETS, mode: "lexical", ...place, ...page }, signal);
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page: SearchHits) => page.next_cursor,
    placeholderData: (before) => before,
    refetchOnWindowFocus: false,
  });
  const hits = useMemo(() => data?.pages.flatMap((page) => page.items) ?? [], [data]);
  return {
    hits,
    isBusy: isPending || isPlaceholderData,
    isLoadingMore: isFetchingNextPage,
    error,
    hasMore: hasNextPage && !isPlaceholderData,
    loadMore: fetchNextPage,
    // The cursor may have expired, so load everything again.
    tryAgain: useCallback(() => { void refetch(); }, [refetch]),
  };
}
