/** One line above the field: how the connection stands, that earlier messages are being summarized, and what the answer waits for. */
import { CircleAlert, Hourglass, LoaderCircle, MessageCircleX, WifiOff } from "lucide-react";
import type { JSX } from "react";

import type { ConversationSnapshot } from "../api";
import { useDelayed } from "../ui/useDelayed";
import { describeConnection, describePhase, isMissing, sayCompaction } from "./status";
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
  // Over a broken connection nobody knows what the answer waits for.
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

/** Only a connection that is broken looks like one. */
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
