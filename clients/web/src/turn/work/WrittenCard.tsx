/** A file that the agent writes for the person; it opens beside the conversation, also while it grows. */
import { FilePen } from "lucide-react";
import type { JSX } from "react";

import type { TextView } from "../../api";
import { useArtifacts } from "../../artifacts/context";
import { sayCount } from "../../ui/wording";
import styles from "./work.module.css";

interface WrittenCardProps {
  text: TextView;
  turnId: string;
  isGrowing: boolean;
}

export function WrittenCard({ text, turnId, isGrowing }: WrittenCardProps): JSX.Element {
  const { open } = useArtifacts();
  const name = text.artifact ?? "a text";
  const { round, channel, instance } = text;
  return (
    <button
      type="button"
      className={styles.written}
      aria-label={`Open ${name}`}
      onClick={() => { open({ kind: "written", turnId, round, channel, instance }); }}
    >
      <FilePen className={styles.icon} aria-hidden />
      <span className={styles.title}>{name}</span>
      <span className={styles.took} aria-hidden>{isGrowing ? "writing…" : sayCount(text.text.length, "character")}</span>
    </button>
  );
}
