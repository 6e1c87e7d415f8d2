/** The file tree of a commit, or one of its files. A folder is loaded when it is opened. */
import { clsx } from "clsx";
import { ChevronRight, FileText } from "lucide-react";
import { useEffect, useRef } from "react";
import type { JSX } from "react";

import type { FolderEntry } from "../api";
import { describeError, formatBytes, formatCount } from "../ui/format";
import { joinPath, toggleFolder } from "./folders";
import type { OpenFolders } from "./folders";
import styles from "./project.module.css";
import { ProjectFile } from "./ProjectFile";
import { showPath } from "./text";
import { useFolder } from "./useWorkspace";
import type { Version } from "./useWorkspace";

interface TreeProps {
  version: Version;
  open: OpenFolders;
  onOpen: (open: OpenFolders) => void;
  onFile: (path: string) => void;
}

interface FilesProps extends TreeProps {
  /** The path of the file that is shown; empty for the tree. */
  file: string;
  onBack: () => void;
  takeFocus: () => boolean;
}

export function Files({ file, onBack, takeFocus, ...tree }: FilesProps): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const last = useRef(file);
  useEffect(() => {
    const left = last.current;
    last.current = file;
    // Back from a file the focus returns to its entry, if the tree has it, else to the first one.
    if (file !== "" || left === "") return;
    const entries = [...(place.current?.querySelectorAll<HTMLElement>("[data-path]") ?? [])];
    (entries.find((entry) => entry.dataset["path"] === left) ?? entries[0])?.focus();
  }, [file]);
  return (
    <div ref={place} className={styles.files}>
      {file === "" ? <Level {...tree} folder="" label="Files" /> : (
        <ProjectFile key={`${tree.version.commit} ${file}`} version={tree.version} path={file} onBack={onBack} takeFocus={takeFocus} />
      )}
    </div>
  );
}

function Level({ folder, label, ...rest }: TreeProps & { folder: string; label: string }): JSX.Element {
  const { value, error } = useFolder(rest.version, folder);
  if (error !== null) return <p className={styles.problem} role="alert">Couldn’t load the folder: {describeError(error)}</p>;
  if (value === undefined) return <p className={styles.soft} aria-busy>Loading…</p>;
  if (value.entries.length === 0) return <p className={styles.soft}>There are no files.</p>;
  return (
    <>
      <ul className={styles.level} aria-label={label}>
        {value.entries.map((entry) => <li key={entry.name}><Entry {...rest} path={joinPath(folder, entry.name)} entry={entry} /></li>)}
      </ul>
      {value.more_entries > 0 && <p className={styles.soft}>{formatCount(value.more_entries, "more entry", "more entries")} can’t be shown here. Clone the project to see them.</p>}
    </>
  );
}

function Entry({ path, entry, ...rest }: TreeProps & { path: string; entry: FolderEntry }): JSX.Element {
  const { open, onOpen, onFile } = rest;
  const name = showPath(entry.name);
  if (entry.kind === "file") {
    return (
      <button type="button" className={styles.entry} data-path={path} onClick={() => { onFile(path); }}>
        <FileText aria-hidden />
        <span className={styles.name}><bdi>{name}</bdi></span>{" "}
        <span className={styles.soft}>{entry.size === undefined ? "" : formatBytes(entry.size)}</span>
      </button>
    );
  }
  const isOpen = open.has(path);
  return (
    <>
      <button type="button" className={styles.entry} data-path={path} aria-expanded={isOpen} onClick={() => { onOpen(toggleFolder(open, path)); }}>
        <ChevronRight className={clsx(styles.mark, isOpen && styles.opened)} aria-hidden />
        <span className={styles.name}><bdi>{name}</bdi></span>
      </button>
      {isOpen && <Level {...rest} folder={path} label={name} />}
    </>
  );
}
