/** One line above the field: how the connection stands, and that older parts are being summarized. */
import { LoaderCircle, WifiOff } from "lucide-react";
import type { JSX } from "react";

import type { ConversationSnapshot } from "../api";
import { useDelayed } from "../ui/useDelayed";
import { describeConnection, sayCompaction } from "./status";
import styles from "./thread.module.css";

const BRIEF_MS = 1_000;

interface StatusLineProps {
  live: ConversationSnapshot;
  /** Whether older turns are read to find the one to open. */
  isSought: boolean;
  /** What the person wanted and did not work; empty ones are none. */
  problems: readonly string[];
}

export function StatusLine({ live, isSought, problems }: StatusLineProps): JSX.Element {
  const now = describeConnection(live);
  const rested = useDelayed(now, BRIEF_MS);
  // A break that is over in a moment is not worth a word.
  const connection = now === "" ? "" : rested;
  const compaction = live.compaction === undefined ? "" : sayCompaction(live.compaction);
  return (
    <div className={styles.status} role="status">
      {connection !== "" && <p className={styles.warning}><WifiOff aria-hidden /> {connection}</p>}
      {compaction !== "" && (
        <p>{live.compaction?.status === "started" && <LoaderCircle className={styles.spinning} aria-hidden />} {compaction}</p>
      )}
      {isSought && <p><LoaderCircle className={styles.spinning} aria-hidden /> Looking for the message…</p>}
      {problems.filter((problem) => problem !== "").map((problem) => <p key={problem} className={styles.warning}>{problem}</p>)}
    </div>
  );
}
