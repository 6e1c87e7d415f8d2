/** What was said that has the words of a search, page by page. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";

import type { SearchHit, SearchHits } from "../api";
import { useBackend } from "../session/context";

export interface FoundTexts {
  hits: readonly SearchHit[];
  /** Whether these are the hits of another search, or none yet. */
  isBusy: boolean;
  isLoadingMore: boolean;
  error: Error | null;
  hasMore: boolean;
  loadMore: () => Promise<unknown>;
  tryAgain: () => void;
}

const PAGE_HITS = 10;
/** Working summaries and notes are the agent's own: no screen shows them where they were found. */
const TARGETS = ["user", "assistant", "attachment"] as const;

/**
 * `search` has something in it that is no blank; `conversationId` is null for all conversations. A request that is not
 * wanted any more is given up.
 */
export function useMessageSearch(search: string, conversationId: string | null): FoundTexts {
  const backend = useBackend();
  const { data, error, isPending, isPlaceholderData, isFetchingNextPage, hasNextPage, fetchNextPage, refetch } = useInfiniteQuery({
    queryKey: ["messages", search, conversationId],
    // Who types wants what says it; what is only about the same would be there whatever is typed.
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
    // A place in the hits that is too old is no place any more: all is read anew.
    tryAgain: useCallback(() => { void refetch(); }, [refetch]),
  };
}
