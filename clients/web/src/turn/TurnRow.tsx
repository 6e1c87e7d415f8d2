/** One turn: the user's message, the work on it, the answer, and the next actions. */
import { memo, useMemo } from "react";
import type { JSX } from "react";

import { isOpen } from "../api";
import type { TurnView } from "../api";
import { FileCard } from "../files/FileCard";
import { FileImage } from "../files/FileImage";
import { kindOf } from "../files/kinds";
import { ReferencesContext, buildReferences } from "../markdown/references";
import { PartView } from "./PartView";
import { buildParts, findOutputs } from "./parts";
import type { Part } from "./parts";
import { UserMessage } from "./UserMessage";
import { Sources } from "./Sources";
import { Suggestions } from "./Suggestions";
import { TurnEnd } from "./TurnEnd";
import { TurnFooter } from "./TurnFooter";
import styles from "./turn.module.css";
import { PlanCard } from "./work/PlanCard";

interface TurnRowProps {
  turn: TurnView;
  /** Whether it is the last turn; only the last one shows its suggestions. */
  isLast: boolean;
  /** Ref of the turn at which the conversation was opened. */
  opened?: ((element: HTMLElement | null) => void) | undefined;
}

export const TurnRow = memo(function TurnRow({ turn, isLast, opened }: TurnRowProps): JSX.Element {
  const { citations, files, attachments } = turn;
  const references = useMemo(() => buildReferences(citations, [...attachments, ...files]), [citations, files, attachments]);
  const parts = useMemo(() => buildParts(turn), [turn]);
  const goesOn = isOpen(turn);
  return (
    <ReferencesContext value={references}>
      <article
        ref={opened}
        tabIndex={-1}
        className={styles.turn}
        aria-label={`Message ${turn.ordinal}`}
        aria-busy={goesOn}
        aria-current={opened === undefined ? undefined : "location"}
      >
        <h2 className="visually-hidden">Message {turn.ordinal}</h2>
        <UserMessage text={turn.text} files={turn.attachments} />
        <div className={styles.reply} role="group" aria-label="Reply">
          {turn.plans.map((plan) => <PlanCard key={plan.plan_id} plan={plan} isLive={goesOn} />)}
          <Work parts={parts} turn={turn} />
          <Outputs turn={turn} />
          <Sources citations={turn.citations} />
          <TurnEnd turn={turn} isLast={isLast} />
          {!goesOn && <TurnFooter turn={turn} />}
        </div>
        {isLast && !goesOn && <Suggestions items={turn.followups} />}
      </article>
    </ReferencesContext>
  );
});

function Work({ parts, turn }: { parts: readonly Part[]; turn: TurnView }): JSX.Element {
  return (
    <>
      {parts.map((part) => <PartView key={part.key} part={part} turnId={turn.turn_id} />)}
      {turn.status === "running" && <p className={styles.working}><span className={styles.pulse} aria-hidden />{parts.length === 0 ? "Starting" : "Working"}…</p>}
    </>
  );
}

function Outputs({ turn }: { turn: TurnView }): JSX.Element | null {
  const files = findOutputs(turn);
  if (files.length === 0) return null;
  const pictures = files.filter((file) => kindOf(file.mime, file.filename) === "image");
  return (
    <section aria-label="Files" className={styles.outputs}>
      {pictures.map((file) => <FileImage key={file.artifact_id} file={file} />)}
      <ul className={styles.files}>
        {files.map((file) => <li key={file.artifact_id}><FileCard file={file} /></li>)}
      </ul>
    </section>
  );
}
