/** The commits of a conversation's workspace: the turns that changed files, newest first. */
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";

import { isOpen } from "../api";
import type { Commit, CommitList, TurnView } from "../api";
import { useBackend } from "../session/context";

export interface Commits {
  /** Undefined until they are loaded. */
  commits: readonly Commit[] | undefined;
  error: Error | null;
  hasMore: boolean;
  isLoadingMore: boolean;
  loadMore: () => void;
}

/** Only a turn that has ended has a commit. */
function findLastEnded(turns: readonly TurnView[]): string | undefined {
  return turns.findLast((turn) => !isOpen(turn))?.turn_id;
}

export function useCommits(conversationId: string, turns: readonly TurnView[]): Commits {
  const backend = useBackend();
  const queryKey = ["commits", conversationId];
  const { data, error, hasNextPage, isFetchingNextPage, fetchNextPage } = useInfiniteQuery({
    queryKey,
    queryFn: ({ pageParam, signal }) => backend.listCommits(conversationId, { before: pageParam }, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page: CommitList) => page.next_before,
  });
  useReload(findLastEnded(turns), queryKey);
  const commits = useMemo(() => data?.pages.flatMap((page) => page.commits), [data]);
  return { commits, error, hasMore: hasNextPage, isLoadingMore: isFetchingNextPage, loadMore: () => void fetchNextPage() };
}

/** Loads something again when another turn has ended. */
function useReload(ended: string | undefined, queryKey: readonly string[]): void {
  const queries = useQueryClient();
  const seen = useRef(ended);
  useEffect(() => {
    const before = seen.current;
    seen.current = ended;
    if (before !== undefined && before !== ended) void queries.invalidateQueries({ queryKey });
  });
}
