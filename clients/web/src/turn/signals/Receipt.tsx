/** A message sent while a turn ran, with its delivery state; until it is delivered it can be edited or withdrawn. */
import { Pencil, Undo2 } from "lucide-react";
import { use, useState } from "react";
import type { JSX, KeyboardEvent } from "react";

import type { SignalView } from "../../api";
import { FileCard } from "../../files/FileCard";
import { Button, IconButton } from "../../ui/Button";
import { isTouch, submitByEnter } from "../../ui/enterKey";
import { PaperContext } from "../../ui/printing";
import { describeError } from "../../ui/format";
import { useTurnActions } from "../actions";
import { isChangeable } from "../parts";
import { useEdits } from "./edits";
import { describeReceipt, describeSignal } from "./receipts";
import styles from "../turn.module.css";

interface ReceiptProps {
  signal: SignalView;
  /** Whether the answer was stopped when this was delivered. */
  isStopped: boolean;
}

export function Receipt({ signal, isStopped }: ReceiptProps): JSX.Element {
  const { retractSignal } = useTurnActions();
  const { texts, write } = useEdits();
  const isOnPaper = use(PaperContext);
  const [hasAsked, setAsked] = useState(false);
  const [problem, setProblem] = useState("");
  const retract = (): void => {
    setProblem("");
    retractSignal(signal.signal_id).catch((error: unknown) => { setProblem(describeError(error)); });
  };
  const said = signal.text.trim();
  const edit = (): void => {
    setAsked(true);
    write(signal.signal_id, signal.text);
  };
  const edited = texts.get(signal.signal_id);
  if (edited !== undefined && isChangeable(signal) && !isOnPaper) return <Editing signalId={signal.signal_id} text={edited} takesFocus={hasAsked} />;
  return (
    <div className={said === "" ? styles.event : styles.person} role="group" aria-label={describeSignal(signal)}>
      {said !== "" && <p className={styles.said} dir="auto">{said}</p>}
      {signal.attachments.length > 0 && (
        <ul className={styles.attached}>{signal.attachments.map((file) => <li key={file.artifact_id}><FileCard file={file} /></li>)}</ul>
      )}
      <div className={styles.receipt}>
        <span>{describeReceipt(signal, isStopped)}</span>
        {isChangeable(signal) && (
          <>
            <IconButton label="Edit" icon={<Pencil aria-hidden />} onClick={edit} />
            <IconButton label="Retract" icon={<Undo2 aria-hidden />} onClick={retract} />
          </>
        )}
      </div>
      {problem !== "" && <p role="alert" className={styles.problem}>{problem}</p>}
    </div>
  );
}

interface EditingProps {
  signalId: string;
  text: string;
  /** Whether the user has just opened the editor, as opposed to it scrolling back into view. */
  takesFocus: boolean;
}

function Editing({ signalId, text, takesFocus }: EditingProps): JSX.Element {
  const { editSignal } = useTurnActions();
  const { write, close } = useEdits();
  const [isSaving, setSaving] = useState(false);
  const [problem, setProblem] = useState("");
  const canSave = text.trim() !== "" && !isSaving;
  const save = async (): Promise<void> => {
    if (!canSave) return;
    setSaving(true);
    setProblem("");
    try {
      await editSignal(signalId, text);
      close(signalId);
    } catch (error) {
      setProblem(describeError(error));
      setSaving(false);
    }
  };
  // Escape cancels the edit and must not also stop the answer.
  const cancelByEscape = (event: KeyboardEvent): void => {
    if (event.key !== "Escape" || event.nativeEvent.isComposing) return;
    event.preventDefault();
    event.stopPropagation();
    close(signalId);
  };
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- Escape works wherever focus is inside
    <form className={styles.editing} aria-label="Edit your message" onKeyDown={cancelByEscape} onSubmit={(event) => { event.preventDefault(); void save(); }}>
      <textarea
        aria-label="Edit your message"
        dir="auto"
        enterKeyHint={isTouch() ? "enter" : "done"}
        value={text}
        readOnly={isSaving}
        rows={3}
        // eslint-disable-next-line jsx-a11y/no-autofocus -- the person has just asked to write here
        autoFocus={takesFocus}
        onFocus={({ target }) => { target.setSelectionRange(target.value.length, target.value.length); }}
        onChange={(event) => { write(signalId, event.target.value); }}
        onKeyDown={(event) => { submitByEnter(event, save); }}
      />
      <div className={styles.receipt}>
        <span className={styles.hint} aria-hidden>Enter to save · Shift+Enter for a new line · Esc to cancel</span>
        <Button variant="primary" type="submit" disabled={!canSave}>Save</Button>
        <Button onClick={() => { close(signalId); }}>Cancel</Button>
      </div>
      {problem !== "" && <p role="alert" className={styles.problem}>{problem}</p>}
    </form>
  );
}
