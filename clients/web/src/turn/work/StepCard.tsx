/** One step of the work: which tool, with what, what came of it, and how long it took. */
import { CircleAlert, CircleCheck, CirclePause, CircleSlash, LoaderCircle } from "lucide-react";
import { use } from "react";
import type { JSX } from "react";

import type { StepView } from "../../api";
import { Disclosure } from "../../ui/Disclosure";
import { lookUp, oneLine, sayDuration } from "../../ui/wording";
import { ToolProgressContext } from "../actions";
import { Parameters } from "./Parameters";
import styles from "./work.module.css";

const STATUS_WORDS = { asked: "waits for you", started: "running", completed: "done", error: "failed", cancelled: "cancelled" } as const;
const FAILURES: Readonly<Record<string, string>> = {
  error: "The tool failed.",
  ambiguous: "Nobody knows whether it was done: the worker ended in the middle of it.",
  cancelled: "It was cancelled.",
};

type Standing = keyof typeof STATUS_WORDS;
const STATUSES: Readonly<Record<string, Standing>> = { started: "started", completed: "completed", error: "error" };

/** `isAsked`: the person is asked whether the call may be made. */
export function StepCard({ step, isAsked }: { step: StepView; isAsked: boolean }): JSX.Element {
  const stands = standing(step, isAsked);
  const progress = use(ToolProgressContext).get(step.call_id ?? "");
  const took = step.duration_ms === undefined ? "" : sayDuration(step.duration_ms);
  return (
    <Disclosure
      className={styles.step}
      label={`Step ${step.title}, ${STATUS_WORDS[stands]}${took === "" ? "" : `, ${took}`}`}
      summary={
        <>
          <StatusIcon status={stands} />
          <span className={styles.title}>{step.title}</span>
          <span className={styles.teaser} aria-hidden>{step.status === "started" ? oneLine(progress?.progress ?? "") : ""}</span>
          <span className={styles.took} aria-hidden>{took}</span>
        </>
      }
    >
      {() => <StepDetails step={step} messages={progress?.messages ?? []} />}
    </Disclosure>
  );
}

/** A call that was cut short when the person stopped the turn did not fail. */
function standing(step: StepView, isAsked: boolean): Standing {
  if (isAsked) return "asked";
  return step.error === "cancelled" ? "cancelled" : lookUp(STATUSES, step.status, "completed");
}

function StatusIcon({ status }: { status: Standing }): JSX.Element {
  switch (status) {
    case "asked":
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

function StepDetails({ step, messages }: { step: StepView; messages: readonly string[] }): JSX.Element {
  return (
    <div className={styles.details}>
      {step.tool_id !== undefined && <p className={styles.tool}>Tool <code>{step.tool_id}</code>, round {step.round}</p>}
      {step.params !== undefined && <Parameters params={step.params} />}
      {messages.map((message) => <p key={message}>{message}</p>)}
      {step.error !== undefined && <p className={styles.failure}>{FAILURES[step.error] ?? step.error}</p>}
      {step.result_preview !== undefined && step.result_preview !== "" && (
        <>
          <h4 className={styles.label}>{step.status === "error" ? "What it said" : "Result"}</h4>
          {/* It scrolls, by keyboard too. */}
          {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls has to take focus */}
          <pre className={styles.output} tabIndex={0}>{step.result_preview}</pre>
        </>
      )}
    </div>
  );
}
