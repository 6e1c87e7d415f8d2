/** A file that the agent writes for the person; it opens beside the conversation, also while it grows. */
import { FilePen } from "lucide-react";
import type { JSX } from "react";

import type { FileView, TextView } from "../../api";
import { useArtifacts } from "../../artifacts/context";
import { DownloadButton } from "../../files/FileCard";
import { sayBytes, sayCount } from "../../ui/wording";
import styles from "./work.module.css";

interface WrittenCardProps {
  text: TextView;
  turnId: string;
  isGrowing: boolean;
  /** The file that it has become; undefined until it has. */
  file: FileView | undefined;
}

export function WrittenCard({ text, turnId, isGrowing, file }: WrittenCardProps): JSX.Element {
  const { open } = useArtifacts();
  const name = text.artifact ?? "Text";
  const { round, channel, instance } = text;
  const size = file === undefined ? sayCount(text.text.length, "character") : sayBytes(file.size);
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
