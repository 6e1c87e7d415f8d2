/** The person's conversations, page by page, as they stand now. */
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo } from "react";

import type { ConversationList, ConversationView } from "../api";
import { useBackend } from "../session/context";
import { hearTabs, tellTabs } from "../session/tabs";
import { joinPages } from "./pages";

export interface Listed {
  conversations: readonly ConversationView[];
  isLoading: boolean;
  error: Error | null;
  hasMore: boolean;
  loadMore: () => void;
}

const KEY = "conversations";
const PAGE_ROWS = 50;
/** Of those that a search finds, so that what was said is found below them. */
const FOUND_ROWS = 8;
/** Nothing tells of other conversations' states, so they are asked for while somebody looks. */
const REFRESH_MS = 15_000;
/** A person who is far down the list reads it; it is not read again behind their back. */
const REFRESHED_PAGES = 3;

export function useConversationList(search: string, isArchived: boolean): Listed {
  const backend = useBackend();
  const { data, error, isPending, hasNextPage, isFetchingNextPage, fetchNextPage } = useInfiniteQuery({
    queryKey: [KEY, search, isArchived],
    queryFn: ({ pageParam, signal }) => backend.listConversations({ search, isArchived, limit: search === "" ? PAGE_ROWS : FOUND_ROWS, cursor: pageParam }, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page: ConversationList) => page.next_cursor,
    refetchInterval: (query) => ((query.state.data?.pages.length ?? 1) > REFRESHED_PAGES ? false : REFRESH_MS),
    placeholderData: (before) => before,
  });
  const conversations = useMemo(() => joinPages(data?.pages ?? []), [data]);
  const loadMore = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
  return { conversations, isLoading: isPending, error, hasMore: hasNextPage, loadMore };
}

export interface Refreshing {
  /** Conversations changed, as the stream told: the list of this tab. */
  refresh: () => void;
  /** The person changed them: the lists of all tabs. */
  refreshAll: () => void;
}

export function useRefreshConversations(): Refreshing {
  const queries = useQueryClient();
  const refresh = useCallback(() => { void queries.invalidateQueries({ queryKey: [KEY] }); }, [queries]);
  useEffect(() => hearTabs((news) => { if (news.kind === "conversations") refresh(); }), [refresh]);
  const refreshAll = useCallback(() => {
    refresh();
    tellTabs({ kind: "conversations" });
  }, [refresh]);
  return { refresh, refreshAll };
}
