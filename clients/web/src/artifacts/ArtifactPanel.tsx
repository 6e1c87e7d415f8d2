/** The open artifact beside the conversation: a file, or a document that the agent is writing. Loaded on first use. */
import { useMemo } from "react";
import type { JSX } from "react";

import type { FileView, TextView, TurnView } from "../api";
import { DownloadButton } from "../files/FileCard";
import { kindOf } from "../files/kinds";
import { useFileText } from "../files/useFile";
import { CopyButton } from "../markdown/CodeBlock";
import { lookUp, formatBytes, formatCount, describeError } from "../ui/format";
import type { ArtifactTarget } from "../files/artifacts";
import { Panel } from "./Panel";
import styles from "./artifacts.module.css";
import { ImageArtifact } from "./ImageArtifact";
import { TextArtifact } from "./TextArtifact";

interface ArtifactPanelProps {
  target: Extract<ArtifactTarget, { kind: "file" | "written" }>;
  turns: readonly TurnView[];
  onClose: () => void;
}

export default function ArtifactPanel({ target, turns, onClose }: ArtifactPanelProps): JSX.Element {
  if (target.kind === "file") return <FilePanel file={target.file} onClose={onClose} />;
  return <WrittenPanel target={target} turns={turns} onClose={onClose} />;
}

function WrittenPanel({ target, turns, onClose }: ArtifactPanelProps & { target: { kind: "written" } }): JSX.Element {
  const turn = turns.find((each) => each.turn_id === target.turnId);
  const text = turn?.texts.find((each) => isWanted(each, target));
  const name = text?.artifact ?? "Text";
  const isGrowing = turn?.status === "running" && turn.sealed_round < target.round;
  return (
    <Panel
      title={name}
      details={isGrowing ? "writing…" : formatCount(text?.text.length ?? 0, "character")}
      tools={text !== undefined && <CopyButton text={text.text} label="Copy text" />}
      onClose={onClose}
    >
      {text === undefined ? <p className={styles.notice}>This text is no longer available.</p> : (
        <TextArtifact text={text.text} kind={kindOf(lookUp<string>(MIMES, text.format, MIMES.text), name)} filename={name} isGrowing={isGrowing} />
      )}
    </Panel>
  );
}

const MIMES = { markdown: "text/markdown", html: "text/html", json: "application/json", code: "text/plain", text: "text/plain" } as const;

function isWanted(text: TextView, target: { round: number; channel: string; instance: number }): boolean {
  return text.round === target.round && text.channel === target.channel && text.instance === target.instance;
}

function FilePanel({ file, onClose }: { file: FileView; onClose: () => void }): JSX.Element {
  return (
    <Panel title={file.filename} details={formatBytes(file.size)} tools={<DownloadButton file={file} />} onClose={onClose}>
      <FileContent key={file.artifact_id} file={file} />
    </Panel>
  );
}

/** Larger texts are better opened in another program. */
const MAX_SHOWN_BYTES = 5_000_000;

function FileContent({ file }: { file: FileView }): JSX.Element {
  const kind = kindOf(file.mime, file.filename);
  if (kind === "other") return <p className={styles.notice}>No preview for this kind of file. Download it to open it.</p>;
  if (kind === "image") return <ImageArtifact file={file} />;
  if (file.size > MAX_SHOWN_BYTES) return <p className={styles.notice}>This file is too large to preview. Download it to open it.</p>;
  return <TextFile file={file} />;
}

function TextFile({ file }: { file: FileView }): JSX.Element {
  const { value: text, error } = useFileText(file);
  const kind = useMemo(() => kindOf(file.mime, file.filename), [file]);
  if (error !== null) return <p className={styles.problem} role="alert">Couldn’t load the file: {describeError(error)}</p>;
  if (text === undefined) return <p className={styles.notice} aria-busy>Loading the file…</p>;
  return <TextArtifact text={text} kind={kind} filename={file.filename} isGrowing={false} />;
}
