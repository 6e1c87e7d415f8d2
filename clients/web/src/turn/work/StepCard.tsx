/** One step: the tool, its parameters, its result, and how long it took. */
import { CircleAlert, CircleCheck, CirclePause, CircleSlash, LoaderCircle } from "lucide-react";
import { use, useState } from "react";
import type { JSX } from "react";

import type { StepView } from "../../api";
import { CodeBlock } from "../../markdown/CodeBlock";
import { Button } from "../../ui/Button";
import { Disclosure } from "../../ui/Disclosure";
import { lookUp, oneLine, formatDuration, describeError } from "../../ui/format";
import { ToolProgressContext, useTurnActions } from "../actions";
import { Parameters } from "./Parameters";
import styles from "./work.module.css";

const STATUS_WORDS = { pending: "needs approval", started: "running", completed: "done", error: "failed", cancelled: "cancelled" } as const;
const FAILURES: Readonly<Record<string, string>> = {
  error: "The tool failed.",
  ambiguous: "This call ended without a result, so it is unknown whether it took effect.",
  cancelled: "Cancelled.",
};

type StepState = keyof typeof STATUS_WORDS;
const STATUSES: Readonly<Record<string, StepState>> = { started: "started", completed: "completed", error: "error" };

interface StepCardProps {
  step: StepView;
  turnId: string;
  /** Whether the call waits for approval. */
  isPending: boolean;
}

export function StepCard({ step, turnId, isPending }: StepCardProps): JSX.Element {
  const state = stateOf(step, isPending);
  const progress = use(ToolProgressContext).get(step.call_id ?? "");
  const took = step.duration_ms === undefined ? "" : formatDuration(step.duration_ms);
  return (
    <Disclosure
      className={styles.step}
      label={`Step ${step.title}, ${STATUS_WORDS[state]}${took === "" ? "" : `, ${took}`}`}
      summary={
        <>
          <StatusIcon status={state} />
          <span className={styles.title} dir="auto">{step.title}</span>
          <span className={styles.teaser} aria-hidden>{step.status === "started" ? oneLine(progress?.progress ?? "") : ""}</span>
          <span className={styles.took} aria-hidden>{took}</span>
        </>
      }
    >
      {() => <StepDetails step={step} turnId={turnId} messages={progress?.messages ?? []} />}
    </Disclosure>
  );
}

/** A call that was interrupted because the user stopped the turn did not fail. */
function stateOf(step: StepView, isPending: boolean): StepState {
  if (isPending) return "pending";
  return step.error === "cancelled" ? "cancelled" : lookUp(STATUSES, step.status, "completed");
}

function StatusIcon({ status }: { status: StepState }): JSX.Element {
  switch (status) {
    case "pending":
      return <CirclePause className={styles.icon} aria-hidden />;
    case "started":
      return <LoaderCircle className={`${styles.icon ?? ""} ${styles.spinning ?? ""}`} aria-hidden />;
    case "completed":
      return <CircleCheck className={`${styles.icon ?? ""} ${styles.good ?? ""}`} aria-hidden />;
    case "cancelled":
      return <CircleSlash className={styles.icon} aria-hidden />;
    case "error":
      return <CircleAlert className={`${styles.icon ?? ""} ${styles.bad ?? ""}`} aria-hidden />;
  }
}

interface ProgramProps {
  /** The beginning of the program, or all of it. */
  beginning: string;
  chars: number;
  turnId: string;
  step: string;
}

/** The program that the step ran; a long one is loaded in full on demand. */
function Program({ beginning, chars, turnId, step }: ProgramProps): JSX.Element {
  const { loadProgram } = useTurnActions();
  const [code, setCode] = useState(beginning);
  const [problem, setProblem] = useState("");
  const load = async (): Promise<void> => {
    setProblem("");
    try {
      setCode(await loadProgram(turnId, step));
    } catch (error) {
      setProblem(describeError(error));
    }
  };
  return (
    <>
      <p className={styles.label}>Program</p>
      <CodeBlock code={code} language="python" />
      {code.length < chars && <Button onClick={load}>Show all {chars.toLocaleString("en")} characters</Button>}
      {problem !== "" && <p role="alert" className={styles.failure}>{problem}</p>}
    </>
  );
}

function StepDetails({ step, turnId, messages }: { step: StepView; turnId: string; messages: readonly string[] }): JSX.Element {
  return (
    <div className={styles.details}>
      {step.tool_id !== undefined && <p className={styles.tool}>Tool <code>{step.tool_id}</code></p>}
      {step.params !== undefined && <Parameters params={step.params} />}
      {step.code !== undefined && <Program beginning={step.code} chars={step.code_chars ?? step.code.length} turnId={turnId} step={step.step} />}
      {messages.map((message) => <p key={message} dir="auto">{message}</p>)}
      {step.error !== undefined && <p className={styles.failure}>{FAILURES[step.error] ?? step.error}</p>}
      {/* The message of a cancelled call is for the model. */}
      {step.error !== "cancelled" && step.result_preview !== undefined && step.result_preview !== "" && (
        <>
          <p className={styles.label}>{step.status === "error" ? "Error" : "Result"}</p>
          {/* Scrollable by keyboard too. */}
          {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls has to take focus */}
          <pre className={styles.output} tabIndex={0} dir="auto">{step.result_preview}</pre>
        </>
      )}
    </div>
  );
}
