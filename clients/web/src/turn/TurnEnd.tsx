/** The end of a turn without a complete answer: it is queued, failed, or was ended early. */
import { CircleAlert, RotateCcw, StepForward } from "lucide-react";
import { use, useState } from "react";
import type { JSX } from "react";

import type { TurnView } from "../api";
import { Button } from "../ui/Button";
import { Disclosure } from "../ui/Disclosure";
import { describeError } from "../ui/format";
import { useTurnActions } from "./actions";
import { describeFailure } from "./failures";
import { QueuePlaceContext, describePlace } from "./queue";
import styles from "./turn.module.css";

const CONTINUE = "Continue.";

interface TurnEndProps {
  turn: TurnView;
  /** Whether it is the last turn; only the last one can be retried or continued. */
  isLast: boolean;
}

export function TurnEnd({ turn, isLast }: TurnEndProps): JSX.Element | null {
  if (turn.error !== undefined) return <Failed turn={turn} error={turn.error} isLast={isLast} />;
  switch (turn.status) {
    case "queued":
      return <QueuePlaceLine turnId={turn.turn_id} />;
    case "waiting":
      return <p className={styles.state}>Waiting for your approval.</p>;
    default:
      return <Outcome turn={turn} isLast={isLast} />;
  }
}

function Outcome({ turn, isLast }: TurnEndProps): JSX.Element | null {
  switch (turn.outcome) {
    case undefined:
    case "completed":
      return null;
    case "stopped":
      return <p className={styles.state}>You stopped this answer.</p>;
    case "cancelled":
      return <p className={styles.state}>This answer was cancelled.</p>;
    case "capped":
      return <Unfinished canContinue={isLast}>The agent reached a limit, so this answer may be incomplete.</Unfinished>;
    case "cut":
      return <Unfinished canContinue={isLast && mayGoOn(turn.cut_reason)}>{describeCut(turn.cut_reason)}</Unfinished>;
    // A newer server may know other reasons.
    default:
      return <p className={styles.state}>This answer ended early.</p>;
  }
}

type CutReason = TurnView["cut_reason"];

function describeCut(reason: CutReason): string {
  switch (reason) {
    case "length":
      return "This answer was cut off: it reached the model’s length limit.";
    case "size_limit":
      return "This answer was cut off: it reached the size limit.";
    case "time_limit":
      return "This answer was cut off: it took longer than this server allows.";
    case "content_filter":
      return "This answer was cut off by the model provider’s content filter.";
    case "refusal":
      return "The model declined to finish this answer.";
    case "incomplete":
      return "This answer was cut off: the model stopped too early.";
    case "server_error":
      return "This answer was cut off: the server failed.";
    case "provider_error":
      return "This answer was cut off: the model stopped answering.";
    default:
      return "This answer is incomplete.";
  }
}

/** Whether the model could continue the answer. */
function mayGoOn(reason: CutReason): boolean {
  return reason !== "content_filter" && reason !== "refusal";
}

function Unfinished({ canContinue, children }: { canContinue: boolean; children: string }): JSX.Element {
  const { send } = useTurnActions();
  return (
    <div className={styles.unfinished}>
      <p>{children}</p>
      {canContinue && <Button onClick={() => { send(CONTINUE); }}><StepForward aria-hidden /> Continue</Button>}
    </div>
  );
}

function Failed({ turn, error, isLast }: TurnEndProps & { error: NonNullable<TurnView["error"]> }): JSX.Element {
  const { what, advice, details, isRetryable } = describeFailure(error);
  return (
    <div className={styles.failed} role="group" aria-label="The answer failed">
      <CircleAlert aria-hidden />
      <div className={styles.failure}>
        <p><strong>{what}</strong> {advice}</p>
        {isLast && isRetryable && <Retry turn={turn} />}
        {details !== "" && (
          <Disclosure summary={<span>Technical details</span>}>
            {() => <p className={styles.technical} dir="auto">{details}</p>}
          </Disclosure>
        )}
      </div>
    </div>
  );
}

function Retry({ turn }: { turn: TurnView }): JSX.Element {
  const { retry } = useTurnActions();
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const again = async (): Promise<void> => {
    setBusy(true);
    setProblem("");
    try {
      await retry(turn);
    } catch (error) {
      setProblem(describeError(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <Button disabled={isBusy} onClick={again}><RotateCcw aria-hidden /> Try again</Button>
      {problem !== "" && <p role="alert">{problem}</p>}
    </>
  );
}

function QueuePlaceLine({ turnId }: { turnId: string }): JSX.Element {
  const place = use(QueuePlaceContext);
  return <p className={styles.state}>{describePlace(place?.turnId === turnId ? place : null)}</p>;
}
