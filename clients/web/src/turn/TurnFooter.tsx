/** Actions on an ended turn: copy, rate, and, except in an embedded chat, inspect and fork. */
import { GitFork, Info, ScanSearch } from "lucide-react";
import { use, useId, useRef, useState } from "react";
import type { JSX } from "react";

import type { TurnView } from "../api";
import { EmbeddedContext } from "../embed/embedding";
import { useArtifacts } from "../files/artifacts";
import { FeedbackBar } from "./FeedbackBar";
import { CopyButton } from "../markdown/CodeBlock";
import { IconButton } from "../ui/Button";
import { describeError } from "../ui/format";
import { useTurnActions } from "./actions";
import { lastAnswer } from "./parts";
import styles from "./turn.module.css";
import { describeUsage } from "./usage";

export function TurnFooter({ turn }: { turn: TurnView }): JSX.Element {
  const { fork } = useTurnActions();
  const { open } = useArtifacts();
  const isEmbedded = use(EmbeddedContext);
  const [problem, setProblem] = useState("");
  const isForking = useRef(false);
  const answer = lastAnswer(turn);
  const forkHere = (): void => {
    // A double click requests only one fork.
    if (isForking.current) return;
    isForking.current = true;
    setProblem("");
    fork(turn.turn_id).catch((error: unknown) => { setProblem(describeError(error)); }).finally(() => { isForking.current = false; });
  };
  return (
    <footer className={styles.footer}>
      {answer !== "" && <CopyButton text={answer} label="Copy answer" />}
      {(answer !== "" || turn.feedback.length > 0) && <FeedbackBar turnId={turn.turn_id} feedback={turn.feedback} />}
      {!isEmbedded && <IconButton label="Fork the conversation from here" icon={<GitFork aria-hidden />} onClick={forkHere} />}
      {!isEmbedded && turn.rounds > 0 && (
        <IconButton
          label="Show what the model saw"
          icon={<ScanSearch aria-hidden />}
          onClick={() => { open({ kind: "context", turnId: turn.turn_id, rounds: turn.rounds }); }}
        />
      )}
      <Usage turn={turn} />
      {problem !== "" && <span role="alert" className={styles.problem}>{problem}</span>}
    </footer>
  );
}

/** Usage figures, shown on demand. */
function Usage({ turn }: { turn: TurnView }): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  const usage = describeUsage(turn);
  return (
    <>
      <button
        type="button"
        className={styles.info}
        aria-label="Details"
        title={usage}
        aria-expanded={isOpen}
        aria-controls={isOpen ? id : undefined}
        onClick={() => { setOpen(!isOpen); }}
      >
        <Info aria-hidden />
      </button>
      {isOpen && <span id={id} className={styles.usage}>{usage}</span>}
    </>
  );
}
