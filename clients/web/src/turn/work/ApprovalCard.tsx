/** A call that needs approval; afterwards, how it was answered. */
import { ShieldQuestion } from "lucide-react";
import { useState } from "react";
import type { JSX } from "react";

import type { ApprovalView } from "../../api";
import { readLink } from "../../markdown/addresses";
import { Button } from "../../ui/Button";
import { escapeInvisible } from "../../ui/invisibleCharacters";
import { useNow } from "../../ui/useNow";
import { describeError, formatTimeLeft, lookUp } from "../../ui/format";
import { useTurnActions } from "../actions";
import { Parameters } from "./Parameters";
import styles from "./work.module.css";

const MAX_REASON_CHARS = 2_000;
const OUTCOMES = {
  approved: "was approved",
  denied: "was denied",
  expired: "was not answered in time and was denied",
  withdrawn: "no longer needs approval",
} as const;

export function ApprovalCard({ approval }: { approval: ApprovalView }): JSX.Element {
  if (approval.state === "pending") return <PendingApproval approval={approval} />;
  return (
    <p className={styles.settled}>
      <ShieldQuestion className={styles.icon} aria-hidden />
      <span>
        <code>{approval.tool_id}</code> {describeOutcome(approval)}{approval.reason === "" ? "." : `: ${approval.reason}`}
      </span>
    </p>
  );
}

function describeOutcome(approval: ApprovalView): string {
  // A person who signs in has not approved the call, and it requests the tokens only then.
  if (approval.state === "approved" && approval.connect_url) return "continues after you signed in";
  return lookUp<string>(OUTCOMES, approval.state, "is no longer pending");
}

function PendingApproval({ approval }: { approval: ApprovalView }): JSX.Element {
  const { answerApproval } = useTurnActions();
  const [reason, setReason] = useState("");
  const [sent, setSent] = useState<"approve" | "deny" | null>(null);
  const [problem, setProblem] = useState("");
  const target = readLink(approval.connect_url ?? undefined);
  const link = target.kind === "web" ? target.href : undefined;
  const answer = async (kind: "approve" | "deny"): Promise<void> => {
    setSent(kind);
    setProblem("");
    try {
      await answerApproval(approval.approval_id, kind, reason);
    } catch (error) {
      setSent(null);
      setProblem(describeError(error));
    }
  };
  return (
    <section className={styles.approval} aria-label={`Approval of ${approval.tool_id}`}>
      <h3><ShieldQuestion className={styles.icon} aria-hidden /> <span>{link === undefined ? "Allow" : "Connect an account for"} <code>{approval.tool_id}</code>?</span></h3>
      {approval.explanation !== "" && <p className={styles.explanation}>{approval.explanation}</p>}
      <Parameters params={approval.params} />
      {(approval.details ?? "") !== "" && <Details text={approval.details ?? ""} />}
      {approval.cut && <p className={styles.soft}>The parameters are too long to show in full.</p>}
      <label className={styles.reason}>
        <span>Reason (optional)</span>
        <input type="text" dir="auto" value={reason} maxLength={MAX_REASON_CHARS} onChange={(event) => { setReason(event.target.value); }} />
      </label>
      <div className={styles.row}>
        {link === undefined
          ? <Button variant="primary" disabled={sent !== null} onClick={() => answer("approve")}>Approve</Button>
          : <a href={link} target="_blank" rel="noopener noreferrer">Connect</a>}
        <Button variant="danger" disabled={sent !== null} onClick={() => answer("deny")}>Deny</Button>
        <Deadline at={approval.expires_at} />
      </div>
      {problem !== "" && <p role="alert" className={styles.failure}>{problem}</p>}
    </section>
  );
}

/** What the call would do: lines that the server has bounded, and that may need scrolling, by keyboard too. */
function Details({ text }: { text: string }): JSX.Element {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls has to take focus
    <pre className={styles.described} role="region" aria-label="What this would do" tabIndex={0}>{escapeInvisible(text)}</pre>
  );
}

function Deadline({ at }: { at: string }): JSX.Element {
  const left = formatTimeLeft(Date.parse(at), useNow());
  return (
    <span className={styles.soft}>
      {left === "" ? "Expired" : <>Expires in <time dateTime={at}>{left}</time></>}
    </span>
  );
}
