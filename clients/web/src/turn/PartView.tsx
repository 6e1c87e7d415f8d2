/** Renders one part of a turn by its kind. */
import { memo } from "react";
import type { JSX } from "react";

import type { TextView } from "../api";
import { CodeBlock } from "../markdown/CodeBlock";
import { Markdown } from "../markdown/Markdown";
import { escapeDirectionOverrides } from "../ui/invisibleCharacters";
import type { Part } from "./parts";
import { Receipt } from "./signals/Receipt";
import styles from "./turn.module.css";
import { ApprovalCard } from "./work/ApprovalCard";
import { StepCard } from "./work/StepCard";
import { Thinking } from "./work/Thinking";
import { WrittenCard } from "./work/WrittenCard";

interface PartViewProps {
  part: Part;
  turnId: string;
}

export const PartView = memo(
  function PartView({ part, turnId }: PartViewProps): JSX.Element {
    switch (part.kind) {
      case "thinking":
        return <Thinking text={part.text.text} isGrowing={part.isGrowing} />;
      case "note":
        return <div className={styles.note}><Words text={part.text} isGrowing={part.isGrowing} /></div>;
      case "written":
        return <WrittenCard text={part.text} turnId={turnId} isGrowing={part.isGrowing} file={part.file} />;
      case "answer":
        return <div className={styles.answer}><Words text={part.text} isGrowing={part.isGrowing} /></div>;
      case "step":
        return <StepCard step={part.step} turnId={turnId} isPending={part.isPending} />;
      case "approval":
        return <ApprovalCard approval={part.approval} />;
      case "signal":
        return <Receipt signal={part.signal} isStopped={part.isStopped} />;
    }
  },
  (before, after) => before.turnId === after.turnId && isSame(before.part, after.part),
);

/** Parts are rebuilt with their turn; compare what they show. */
function isSame(before: Part, after: Part): boolean {
  if (before.key !== after.key) return false;
  switch (before.kind) {
    case "step":
      return after.kind === "step" && before.step === after.step && before.isPending === after.isPending;
    case "approval":
      return after.kind === "approval" && before.approval === after.approval;
    case "signal":
      return after.kind === "signal" && before.signal === after.signal && before.isStopped === after.isStopped;
    case "written":
      return after.kind === "written" && before.text === after.text && before.isGrowing === after.isGrowing && before.file === after.file;
    default:
      return before.kind === after.kind && before.text === after.text && before.isGrowing === after.isGrowing;
  }
}

function Words({ text, isGrowing }: { text: TextView; isGrowing: boolean }): JSX.Element {
  switch (text.format) {
    case "markdown":
      return <Markdown text={text.text} isGrowing={isGrowing} />;
    case "json":
      return <CodeBlock code={text.text} language="json" />;
    case "code":
      return <CodeBlock code={text.text} />;
    // HTML is rendered only in the frame beside the conversation; here it stays text.
    case "html":
    case "text":
    default:
      return <p className={styles.plain} dir="auto">{escapeDirectionOverrides(text.text)}</p>;
  }
}
