/** The collections of documents that the user may read, and what is in one of them. */
import { useQuery, useQueryClient } from "@tanstack/react-query";

import type { Collection, KeptDocument } from "../api";
import { useBackend } from "../session/context";

const KEY = "collections";
/** How soon documents that are being indexed are looked at again. */
const WAITING_MS = 2_000;

export interface Loaded<Item> {
  items: readonly Item[];
  isLoading: boolean;
  error: Error | null;
}

export function useCollections(): Loaded<Collection> {
  const backend = useBackend();
  const { data, isLoading, error } = useQuery({
    queryKey: [KEY],
    queryFn: ({ signal }) => backend.listCollections(signal),
    refetchInterval: ({ state }) => (state.data?.collections.some(({ waiting }) => waiting > 0) === true ? WAITING_MS : false),
  });
  return { items: data?.collections ?? [], isLoading, error };
}

export function useKeptDocuments(collectionId: string): Loaded<KeptDocument> {
  const backend = useBackend();
  const { data, isLoading, error } = useQuery({
    queryKey: [KEY, collectionId],
    queryFn: ({ signal }) => backend.listDocuments(collectionId, signal),
    refetchInterval: ({ state }) => (state.data?.documents.some((document) => document.state === "waiting") === true ? WAITING_MS : false),
  });
  return { items: data?.documents ?? [], isLoading, error };
}

/** Loads everything again after a change. */
export function useRefreshCollections(): () => Promise<void> {
  const queries = useQueryClient();
  return () => queries.invalidateQueries({ queryKey: [KEY] });
}
