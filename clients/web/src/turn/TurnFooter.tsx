/** What can be done with a turn that ended: copy, judge, look inside, go on from here in another conversation. */
import { GitFork, ScanSearch } from "lucide-react";
import { useState } from "react";
import type { JSX } from "react";

import type { TurnView } from "../api";
import { useArtifacts } from "../artifacts/context";
import { FeedbackBar } from "../feedback/FeedbackBar";
import { CopyButton } from "../markdown/CodeBlock";
import { IconButton } from "../ui/Button";
import { sayError } from "../ui/wording";
import { useTurnActions } from "./actions";
import { lastAnswer } from "./parts";
import styles from "./turn.module.css";
import { sayUsage } from "./usage";

export function TurnFooter({ turn }: { turn: TurnView }): JSX.Element {
  const { fork } = useTurnActions();
  const { open } = useArtifacts();
  const [problem, setProblem] = useState("");
  const answer = lastAnswer(turn);
  const forkHere = (): void => {
    setProblem("");
    fork(turn.turn_id).catch((error: unknown) => { setProblem(sayError(error)); });
  };
  return (
    <footer className={styles.footer}>
      {answer !== "" && <CopyButton text={answer} label="Copy answer" />}
      <FeedbackBar turnId={turn.turn_id} feedback={turn.feedback} />
      <IconButton label="Fork the conversation from here" icon={<GitFork aria-hidden />} onClick={forkHere} />
      {turn.rounds > 0 && (
        <IconButton
          label="Show what the model saw"
          icon={<ScanSearch aria-hidden />}
          onClick={() => { open({ kind: "context", turnId: turn.turn_id, rounds: turn.rounds }); }}
        />
      )}
      <span className={styles.usage}>{sayUsage(turn)}</span>
      {problem !== "" && <span role="alert" className={styles.problem}>{problem}</span>}
    </footer>
  );
}
