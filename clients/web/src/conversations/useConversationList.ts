/** The user's conversations, page by page, kept current. */
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo } from "react";

import type { ConversationList, ConversationView } from "../api";
import { useBackend } from "../session/context";
import { onTabMessage, notifyTabs } from "../session/tabs";
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
/** Page size of title matches; small, so that matching messages stay visible below them. */
const FOUND_ROWS = 8;
/** No events are sent for other conversations, so they are polled while the tab is visible. */
const REFRESH_MS = 15_000;
/** A user who has scrolled far down is reading; do not refresh the list under them. */
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
  /** The stream reported a change: refresh the list of this tab. */
  refresh: () => void;
  /** The user made a change: refresh the lists of all tabs. */
  refreshAll: () => void;
}

export function useRefreshConversations(): Refreshing {
  const queries = useQueryClient();
  const refresh = useCallback(() => { void queries.invalidateQueries({ queryKey: [KEY] }); }, [queries]);
  useEffect(() => onTabMessage((news) => { if (news.kind === "conversations") refresh(); }), [refresh]);
  const refreshAll = useCallback(() => {
    refresh();
    notifyTabs({ kind: "conversations" });
  }, [refresh]);
  return { refresh, refreshAll };
}
