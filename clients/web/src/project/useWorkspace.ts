/** Folders, files and differences of a workspace as they were after a commit, which never change. */
import { useQuery } from "@tanstack/react-query";

import type { Diff, Folder } from "../api";
import { decodeText, kindOf } from "../files/kinds";
import type { Loaded } from "../files/useFile";
import { useBackend } from "../session/context";
import { nameOf } from "./folders";

/** A commit of a conversation. */
export interface Version {
  readonly conversationId: string;
  readonly commit: string;
}

export type FileContent = { readonly kind: "text"; readonly text: string } | { readonly kind: "image"; readonly blob: Blob } | { readonly kind: "other" };

/** `folder` is a path, empty for the whole workspace. */
export function useFolder({ conversationId, commit }: Version, folder: string): Loaded<Folder> {
  const backend = useBackend();
  const { data, error } = useQuery({
    queryKey: ["workspace-folder", conversationId, commit, folder],
    queryFn: ({ signal }) => backend.loadFolder(conversationId, commit, folder, signal),
    staleTime: Infinity,
  });
  return { value: data, error };
}

/** What a commit changed; only in one file with its `path`. */
export function useDiff({ conversationId, commit }: Version, path?: string): Loaded<Diff> {
  const backend = useBackend();
  const { data, error } = useQuery({
    queryKey: ["workspace-diff", conversationId, commit, path],
    queryFn: ({ signal }) => backend.loadDiff(conversationId, commit, path, signal),
    staleTime: Infinity,
  });
  return { value: data, error };
}

export function useFileContent({ conversationId, commit }: Version, path: string): Loaded<FileContent> {
  const backend = useBackend();
  const { data, error } = useQuery({
    queryKey: ["workspace-file", conversationId, commit, path],
    queryFn: async ({ signal }) => readContent(await backend.loadFile({ url: backend.workspaceFilePath(conversationId, commit, path) }, signal), nameOf(path)),
    staleTime: Infinity,
  });
  return { value: data, error };
}

async function readContent(blob: Blob, name: string): Promise<FileContent> {
  const kind = kindOf(blob.type, name);
  if (kind === "image") return { kind, blob };
  const text = kind === "other" ? "\0" : await decodeText(blob, blob.type);
  // A zero byte is not in texts, whatever the name of the file says.
  return text.includes("\0") ? { kind: "other" } : { kind: "text", text };
}
