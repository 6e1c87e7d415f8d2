/** One line above the message field: the connection, a running compaction, and what the answer waits for. */
import { CircleAlert, Hourglass, LoaderCircle, MessageCircleX, WifiOff } from "lucide-react";
import type { JSX } from "react";

import type { ConversationSnapshot } from "../api";
import { useDelayed } from "../ui/useDelayed";
import { describeConnection, describePhase, isMissing, describeCompaction } from "./status";
import styles from "./thread.module.css";

const BRIEF_MS = 1_000;

interface StatusLineProps {
  live: ConversationSnapshot;
  /** Whether older turns are being loaded to find the one to open. */
  isSought: boolean;
  /** Errors of the user's actions; empty strings are ignored. */
  problems: readonly string[];
}

export function StatusLine({ live, isSought, problems }: StatusLineProps): JSX.Element {
  const now = describeConnection(live);
  const rested = useDelayed(now, BRIEF_MS);
  // A short interruption is not worth a message.
  const connection = now === "" ? "" : rested;
  const compaction = live.compaction === undefined ? "" : describeCompaction(live.compaction);
  // While the connection is broken, the state of the answer is unknown.
  const phase = live.phase === undefined || now !== "" ? "" : describePhase(live.phase);
  return (
    <div className={styles.status} role="status">
      {connection !== "" && <p className={styles.warning}><ConnectionIcon live={live} /> {connection}</p>}
      {compaction !== "" && (
        <p>{live.compaction?.status === "started" && <LoaderCircle className={styles.spinning} aria-hidden />} {compaction}</p>
      )}
      {phase !== "" && <p><LoaderCircle className={styles.spinning} aria-hidden /> {phase}</p>}
      {isSought && <p><LoaderCircle className={styles.spinning} aria-hidden /> Finding the message…</p>}
      {problems.filter((problem) => problem !== "").map((problem) => <p key={problem} className={styles.warning}>{problem}</p>)}
    </div>
  );
}

/** Only a broken connection gets the warning icon. */
function ConnectionIcon({ live }: { live: ConversationSnapshot }): JSX.Element {
  if (isMissing(live)) return <MessageCircleX aria-hidden />;
  switch (live.connection) {
    case "refused":
      return <CircleAlert aria-hidden />;
    case "waiting":
      return <Hourglass aria-hidden />;
    default:
      return <WifiOff aria-hidden />;
  }
}
