/** A file with its name and size; opens beside the conversation, or downloads. */
import { Download, FileText, Image, Table } from "lucide-react";
import { useState } from "react";
import type { JSX } from "react";

import type { FileView } from "../api";
import { useArtifacts } from "./artifacts";
import { useBackend } from "../session/context";
import { IconButton } from "../ui/Button";
import { downloadBlob } from "../ui/download";
import { formatBytes, describeError } from "../ui/format";
import styles from "./files.module.css";
import { kindOf } from "./kinds";

const ICONS = { image: Image, table: Table } as const;

export function FileCard({ file }: { file: FileView }): JSX.Element {
  const { open } = useArtifacts();
  const kind = kindOf(file.mime, file.filename);
  const Icon = kind === "image" || kind === "table" ? ICONS[kind] : FileText;
  return (
    <div className={styles.card}>
      <button type="button" className={styles.open} aria-label={`Open ${file.filename}`} onClick={() => { open({ kind: "file", file }); }}>
        <Icon aria-hidden />
        <span className={styles.name}>{file.filename}</span>
        <span className={styles.size} aria-hidden>{formatBytes(file.size)}</span>
      </button>
      <DownloadButton file={file} />
    </div>
  );
}

export function DownloadButton({ file }: { file: Pick<FileView, "filename" | "url"> }): JSX.Element {
  const backend = useBackend();
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const download = async (): Promise<void> => {
    setBusy(true);
    setProblem("");
    try {
      downloadBlob(await backend.loadFile(file), file.filename);
    } catch (error) {
      setProblem(describeError(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <IconButton label={`Download ${file.filename}`} icon={<Download aria-hidden />} disabled={isBusy} onClick={download} />
      {problem !== "" && <span role="alert" className={styles.missing}>{problem}</span>}
    </>
  );
}
