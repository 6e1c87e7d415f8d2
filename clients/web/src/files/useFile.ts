/** The content of a file, loaded with the user's credential and cached for a while. */
import { useQuery } from "@tanstack/react-query";
import type { QueryCache } from "@tanstack/react-query";

import type { FileView } from "../api";
import { useBackend } from "../session/context";
import { decodeText } from "./kinds";

export interface Loaded<Value> {
  value: Value | undefined;
  error: Error | null;
}

const ADDRESS = "file-address";

export function useFileText(file: FileView): Loaded<string> {
  const backend = useBackend();
  const { data, error } = useQuery({
    queryKey: ["file-text", file.artifact_id],
    queryFn: async ({ signal }) => decodeText(await backend.loadFile(file, signal), file.mime),
    staleTime: Infinity,
  });
  return { value: data, error };
}

/** A blob address of the content. It has the type that we know, not the one in the response. */
export function useFileAddress(file: FileView): Loaded<string> {
  const backend = useBackend();
  const { data, error } = useQuery({
    queryKey: [ADDRESS, file.artifact_id],
    queryFn: async ({ signal }) => URL.createObjectURL(new Blob([await backend.loadFile(file, signal)], { type: file.mime })),
    staleTime: Infinity,
  });
  return { value: data, error };
}

/** Releases content when its query is evicted from the cache. Returns a function that releases everything. */
export function releaseEvicted(cache: QueryCache): () => void {
  cache.subscribe(({ type, query }) => { if (type === "removed") release(query); });
  return () => { cache.getAll().forEach(release); };
}

function release({ queryKey, state }: { queryKey: readonly unknown[]; state: { data: unknown } }): void {
  if (queryKey[0] === ADDRESS && typeof state.data === "string") URL.revokeObjectURL(state.data);
}
