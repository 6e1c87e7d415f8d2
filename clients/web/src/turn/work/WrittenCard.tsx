/** A file that the agent writes; it opens beside the conversation, even while it grows. */
import { FilePen } from "lucide-react";
import type { JSX } from "react";

import type { FileView, TextView } from "../../api";
import { useArtifacts } from "../../files/artifacts";
import { DownloadButton } from "../../files/FileCard";
import { formatBytes, formatCount } from "../../ui/format";
import styles from "./work.module.css";

interface WrittenCardProps {
  text: TextView;
  turnId: string;
  isGrowing: boolean;
  /** The stored file; undefined until it exists. */
  file: FileView | undefined;
}

export function WrittenCard({ text, turnId, isGrowing, file }: WrittenCardProps): JSX.Element {
  const { open } = useArtifacts();
  const name = text.artifact ?? "Text";
  const { round, channel, instance } = text;
  const size = file === undefined ? formatCount(text.text.length, "character") : formatBytes(file.size);
  return (
    <div className={styles.written}>
      <button
        type="button"
        className={styles.writtenName}
        aria-label={`Open ${name}`}
        onClick={() => { open({ kind: "written", turnId, round, channel, instance }); }}
      >
        <FilePen className={styles.icon} aria-hidden />
        <span className={styles.title} dir="auto">{name}</span>
        <span className={styles.took} aria-hidden>{isGrowing ? "writing…" : size}</span>
      </button>
      {file !== undefined && <DownloadButton file={file} />}
    </div>
  );
}
