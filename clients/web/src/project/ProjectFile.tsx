/** A file of the project as it was after a commit: a text with line numbers, an image, or a download. */
import { ArrowLeft } from "lucide-react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { JSX } from "react";

import { DownloadButton } from "../files/FileCard";
import { useBackend } from "../session/context";
import { Button, IconButton } from "../ui/Button";
import { describeError, formatBytes, formatCount } from "../ui/format";
import { folderOf, nameOf } from "./folders";
import styles from "./project.module.css";
import { showLine, showPath, splitLines } from "./text";
import { useFileContent, useFolder } from "./useWorkspace";
import type { Version } from "./useWorkspace";

const MAX_TEXT_BYTES = 1_000_000;
const MAX_IMAGE_BYTES = 20_000_000;
const SHOWN_LINES = 5_000;
const IMAGE_NAME = /\.(png|jpe?g|gif|webp)$/i;

interface ProjectFileProps {
  version: Version;
  path: string;
  onBack: () => void;
  /** Whether the file was just chosen, and so gets the focus; true only once. */
  takeFocus: () => boolean;
}

export function ProjectFile({ version, path, onBack, takeFocus }: ProjectFileProps): JSX.Element {
  const backend = useBackend();
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    if (takeFocus()) heading.current?.focus({ preventScroll: true });
  }, [takeFocus]);
  // Its size decides whether it is loaded.
  const { value: folder, error } = useFolder(version, folderOf(path));
  const name = nameOf(path);
  const entry = folder?.entries.find((each) => each.kind === "file" && each.name === name);
  const url = backend.workspaceFilePath(version.conversationId, version.commit, path);
  return (
    <>
      <div className={styles.fileHead}>
        <IconButton label="Back to all files" icon={<ArrowLeft className={styles.back} aria-hidden />} onClick={onBack} />
        <h3 ref={heading} tabIndex={-1}><bdi>{showPath(path)}</bdi></h3>
        <span className={styles.soft}>{entry?.size === undefined ? "" : formatBytes(entry.size)}</span>
        {(entry !== undefined || (folder !== undefined && folder.more_entries > 0)) && <DownloadButton file={{ filename: name, url }} />}
      </div>
      {error !== null && <p className={styles.problem} role="alert">Couldn’t load the file: {describeError(error)}</p>}
      {error === null && folder === undefined && <p className={styles.soft} aria-busy>Loading…</p>}
      {folder !== undefined && entry === undefined && (
        <p className={styles.soft}>{folder.more_entries > 0 ? "This file can’t be shown here. Download it to open it." : "This file was not there after this commit."}</p>
      )}
      {entry !== undefined && (
        (entry.size ?? Infinity) > (IMAGE_NAME.test(name) ? MAX_IMAGE_BYTES : MAX_TEXT_BYTES)
          ? <p className={styles.soft}>This file is too large to show. Download it to open it.</p>
          : <Content version={version} path={path} />
      )}
    </>
  );
}

function Content({ version, path }: { version: Version; path: string }): JSX.Element {
  const { value, error } = useFileContent(version, path);
  if (error !== null) return <p className={styles.problem} role="alert">Couldn’t load the file: {describeError(error)}</p>;
  if (value === undefined) return <p className={styles.soft} aria-busy>Loading…</p>;
  if (value.kind === "image") return <Picture blob={value.blob} alt={nameOf(path)} />;
  if (value.kind === "other") return <p className={styles.soft}>No preview for this kind of file. Download it to open it.</p>;
  if (value.text === "") return <p className={styles.soft}>This file is empty.</p>;
  return <NumberedText text={value.text} label={showPath(path)} />;
}

function Picture({ blob, alt }: { blob: Blob; alt: string }): JSX.Element {
  const show = useCallback((image: HTMLImageElement) => {
    const address = URL.createObjectURL(blob);
    image.src = address;
    return () => { URL.revokeObjectURL(address); };
  }, [blob]);
  return <img ref={show} className={styles.image} alt={alt} />;
}

function NumberedText({ text, label }: { text: string; label: string }): JSX.Element {
  const [limit, setLimit] = useState(SHOWN_LINES);
  const lines = useMemo(() => splitLines(text), [text]);
  const shown = useMemo(() => lines.slice(0, limit).map(showLine).join("\n"), [lines, limit]);
  const more = lines.length - limit;
  return (
    <>
      {/* Long lines scroll sideways, by keyboard too. */}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls has to take focus */}
      <div className={styles.text} role="region" aria-label={label} tabIndex={0} dir="ltr">
        <pre className={styles.numbers} aria-hidden>{Array.from({ length: Math.min(limit, lines.length) }, (_, at) => at + 1).join("\n")}</pre>
        <pre><code>{shown}</code></pre>
      </div>
      {more > 0 && <Button onClick={() => { setLimit(limit + SHOWN_LINES); }}>Show more of {formatCount(more, "line")}</Button>}
    </>
  );
}
