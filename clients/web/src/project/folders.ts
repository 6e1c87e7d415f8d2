/** Which folders of the file tree are open, by their paths. */

export type OpenFolders = ReadonlySet<string>;

/** The path of an entry; an empty folder is the whole workspace. */
export function joinPath(folder: string, name: string): string {
  return folder === "" ? name : `${folder}/${name}`;
}

export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** Opens a folder, or closes it; the folders in it stay as they are for the next time. */
export function toggleFolder(open: OpenFolders, path: string): OpenFolders {
  const next = new Set(open);
  if (!next.delete(path)) next.add(path);
  return next;
}

/** Opens all folders around a file. */
export function openAround(open: OpenFolders, path: string): OpenFolders {
  const parts = path.split("/").slice(0, -1);
  return new Set([...open, ...parts.map((_, at) => parts.slice(0, at + 1).join("/"))]);
}

/** The path of the folder around an entry; empty for the whole workspace. */
export function folderOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf("/")));
}
