/** The person's judgement of a turn: good, neutral or bad, with words; pressing the same again clears it. */
import { Meh, ThumbsDown, ThumbsUp } from "lucide-react";
import { useState } from "react";
import type { JSX } from "react";

import type { FeedbackView, Reaction } from "../api";
import { useTurnActions } from "../turn/actions";
import { Button, IconButton } from "../ui/Button";
import { sayError } from "../ui/wording";
import styles from "./FeedbackBar.module.css";

const CHOICES = [
  { reaction: "ok", label: "Good answer", icon: <ThumbsUp aria-hidden /> },
  { reaction: "neutral", label: "Neither good nor bad", icon: <Meh aria-hidden /> },
  { reaction: "not_ok", label: "Bad answer", icon: <ThumbsDown aria-hidden /> },
] as const;
const MAX_TEXT_CHARS = 10_000;

interface FeedbackBarProps {
  turnId: string;
  feedback: readonly FeedbackView[];
}

export function FeedbackBar({ turnId, feedback }: FeedbackBarProps): JSX.Element {
  const { judge } = useTurnActions();
  const given = feedback.find((judgement) => judgement.origin === "user");
  const [isWriting, setWriting] = useState(false);
  const [problem, setProblem] = useState("");
  const give = async (reaction: Reaction | null, text: string): Promise<boolean> => {
    setProblem("");
    try {
      await judge(turnId, reaction, text);
      return true;
    } catch (error) {
      setProblem(sayError(error));
      return false;
    }
  };
  const press = (reaction: Reaction): void => {
    const isCleared = given?.reaction === reaction;
    setWriting(!isCleared);
    void give(isCleared ? null : reaction, isCleared ? "" : (given?.text ?? ""));
  };
  return (
    <>
      <div className={styles.choices} role="group" aria-label="Feedback">
        {CHOICES.map(({ reaction, label, icon }) => (
          <IconButton
            key={reaction}
            label={label}
            icon={icon}
            aria-pressed={given?.reaction === reaction}
            className={given?.reaction === reaction ? styles.pressed : undefined}
            onClick={() => { press(reaction); }}
          />
        ))}
      </div>
      {isWriting && given !== undefined && (
        <Comment text={given.text} onSave={async (text) => { if (await give(given.reaction ?? null, text)) setWriting(false); }} onClose={() => { setWriting(false); }} />
      )}
      {!isWriting && given !== undefined && given.text !== "" && <q className={styles.given} dir="auto">{given.text}</q>}
      {problem !== "" && <span role="alert" className={styles.problem}>{problem}</span>}
    </>
  );
}

interface CommentProps {
  text: string;
  onSave: (text: string) => Promise<void>;
  onClose: () => void;
}

function Comment({ text: before, onSave, onClose }: CommentProps): JSX.Element {
  const [text, setText] = useState(before);
  return (
    <form className={styles.comment} onSubmit={(event) => { event.preventDefault(); void onSave(text); }}>
      <label>
        <span>What could be better? (optional)</span>
        <input type="text" dir="auto" value={text} maxLength={MAX_TEXT_CHARS} onChange={(event) => { setText(event.target.value); }} />
      </label>
      <Button type="submit">Save comment</Button>
      <Button look="quiet" onClick={onClose}>Skip</Button>
    </form>
  );
}
