/** How a turn stands that is not simply done: it waits, failed, or ended before its end. */
import { CircleAlert } from "lucide-react";
import { use } from "react";
import type { JSX } from "react";

import type { TurnView } from "../api";
import { lookUp } from "../ui/wording";
import { QueuePlaceContext, sayPlace } from "./queue";
import styles from "./turn.module.css";

const OUTCOMES = {
  cancelled: "The turn was cancelled.",
  stopped: "The turn was stopped; this is what there was.",
  capped: "The turn reached a limit; this is what there was.",
  cut: "The answer stops before its end.",
  unknown: "The turn ended in a way that this version does not know.",
} as const;

export function TurnEnd({ turn }: { turn: TurnView }): JSX.Element | null {
  if (turn.error !== undefined) {
    return (
      <div className={styles.failed} role="group" aria-label="The turn failed">
        <CircleAlert aria-hidden />
        <p><strong>{turn.error.title}.</strong> {turn.error.detail}</p>
      </div>
    );
  }
  if (turn.status === "queued") return <QueuePlaceLine turnId={turn.turn_id} />;
  if (turn.status === "waiting") return <p className={styles.state}>The turn waits for your word.</p>;
  if (turn.outcome === undefined || turn.outcome === "completed") return null;
  return <p className={styles.state}>{lookUp(OUTCOMES, turn.outcome, OUTCOMES.unknown)}</p>;
}

function QueuePlaceLine({ turnId }: { turnId: string }): JSX.Element {
  const place = use(QueuePlaceContext);
  return <p className={styles.state}>{sayPlace(place?.turnId === turnId ? place : null)}</p>;
}
