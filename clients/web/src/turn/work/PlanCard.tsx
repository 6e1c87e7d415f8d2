/** The agent's plan with a mark for each step. */
import { Circle, CircleCheck, CircleDot, CircleX } from "lucide-react";
import type { JSX } from "react";

import type { PlanSnapshot } from "../../api";
import { lookUp } from "../../ui/format";
import styles from "./work.module.css";

const MARKS = {
  pending: { Icon: Circle, word: "to do" },
  in_progress: { Icon: CircleDot, word: "in progress" },
  done: { Icon: CircleCheck, word: "done" },
  failed: { Icon: CircleX, word: "failed or stopped" },
} as const;
type Mark = (typeof MARKS)[keyof typeof MARKS];
const ENDS = { open: "", complete: "finished", closed: "closed", superseded: "replaced by a new plan" } as const;

interface PlanCardProps {
  plan: PlanSnapshot;
  isLive: boolean;
}

export function PlanCard({ plan, isLive }: PlanCardProps): JSX.Element {
  const done = plan.steps.filter((step) => step.status === "done").length;
  const end = lookUp<string>(ENDS, plan.status, "");
  return (
    <section className={styles.plan} aria-label="Plan">
      <h3 className={styles.planTitle}>
        Plan <span className={styles.took}>{done} of {plan.steps.length} done{end === "" ? "" : `, ${end}`}</span>
      </h3>
      <ol className={styles.steps}>
        {plan.steps.map((step) => {
          const { Icon, word } = lookUp<Mark>(MARKS, step.status, MARKS.pending);
          const isCurrent = isLive && step.status === "in_progress";
          return (
            <li key={step.n} className={styles[step.status]} aria-current={isCurrent ? "step" : undefined}>
              <Icon className={styles.icon} role="img" aria-label={word} />
              <span dir="auto">{step.label}</span>
            </li>
          );
        })}
      </ol>
    </section>
  );
}
