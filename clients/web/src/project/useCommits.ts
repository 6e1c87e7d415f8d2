/** The commits of a conversation's workspace: the turns that changed files, newest first. */
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
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

/** False also while that is not known, or where histories can't be read. */
export function useHasCommits(conversationId: string, turns: readonly TurnView[]): boolean {
  const backend = useBackend();
  const ended = findLastEnded(turns);
  const queryKey = ["has-commits", conversationId];
  const { data } = useQuery({
    queryKey,
    queryFn: async ({ signal }) => (await backend.listCommits(conversationId, { limit: 1 }, signal)).commits.length > 0,
    enabled: ended !== undefined,
    staleTime: Infinity,
  });
  // Once there are commits, the server need not be asked after every turn.
  useReload(ended, queryKey, data !== true);
  return data === true;
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
  useReload(findLastEnded(turns), queryKey, true);
  const commits = useMemo(() => data?.pages.flatMap((page) => page.commits), [data]);
  return { commits, error, hasMore: hasNextPage, isLoadingMore: isFetchingNextPage, loadMore: () => void fetchNextPage() };
}

/** Loads something again when another turn has ended. */
function useReload(ended: string | undefined, queryKey: readonly string[], isWanted: boolean): void {
  const queries = useQueryClient();
  const seen = useRef(ended);
  useEffect(() => {
    const before = seen.current;
    seen.current = ended;
    if (isWanted && before !== undefined && before !== ended) void queries.invalidateQueries({ queryKey });
  });
}
