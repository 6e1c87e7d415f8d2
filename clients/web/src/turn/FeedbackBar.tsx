/** The user's rating of a turn: good, neutral or bad, with a comment. Pressing the same button again removes it. */
import { Meh, ThumbsDown, ThumbsUp } from "lucide-react";
import { useState } from "react";
import type { JSX } from "react";

import type { FeedbackView, Reaction } from "../api";
import { useTurnActions } from "./actions";
import { Button, IconButton } from "../ui/Button";
import { describeError } from "../ui/format";
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
  const { rate } = useTurnActions();
  const given = feedback.find((rating) => rating.origin === "user");
  const [isWriting, setWriting] = useState(false);
  const [problem, setProblem] = useState("");
  const give = async (reaction: Reaction | null, text: string): Promise<boolean> => {
    setProblem("");
    try {
      await rate(turnId, reaction, text);
      return true;
    } catch (error) {
      setProblem(describeError(error));
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
      <Button variant="quiet" onClick={onClose}>Skip</Button>
    </form>
  );
}
