/** The buttons below the field: attach, and send, or while the agent works add, redirect and stop. */
import { ArrowUp, CornerUpRight, Paperclip, Plus, Square, X } from "lucide-react";
import { useRef } from "react";
import type { JSX } from "react";

import { Button, IconButton } from "../ui/Button";
import styles from "./composer.module.css";

interface ComposerButtonsProps {
  canSend: boolean;
  isBusy: boolean;
  isStopping: boolean;
  isSending: boolean;
  onAttach: (files: readonly File[]) => void;
  onSteer: () => Promise<void>;
  onStop: () => void;
  onAbort: () => void;
}

export function ComposerButtons(props: ComposerButtonsProps): JSX.Element {
  const { canSend, isBusy, isSending, onAttach, onAbort } = props;
  return (
    <div className={styles.buttons}>
      <AttachButton onAttach={onAttach} isDisabled={isSending} />
      <span className={styles.hint} aria-hidden>
        <span>{isBusy ? "Enter to add" : "Enter to send"}</span>
        <span>{isBusy ? "\u00a0· Esc to stop" : "\u00a0· Shift+Enter for a new line"}</span>
      </span>
      {isSending && <Button onClick={onAbort}><X aria-hidden /> Cancel sending</Button>}
      {isBusy ? <BusyButtons {...props} /> : <IconButton label="Send" icon={<ArrowUp aria-hidden />} variant="primary" type="submit" disabled={!canSend} />}
    </div>
  );
}

function BusyButtons({ canSend, isStopping, onSteer, onStop }: ComposerButtonsProps): JSX.Element {
  return (
    <>
      {canSend && (
        <>
          <Button type="submit" className={styles.compact} title="The agent reads it before its next step"><Plus aria-hidden /> <span>Add</span></Button>
          <Button onClick={onSteer} className={styles.compact} title="The agent stops what it is doing and follows this message instead"><CornerUpRight aria-hidden /> <span>Redirect</span></Button>
        </>
      )}
      <Button variant="primary" onClick={onStop} title={isStopping ? "Cancel immediately" : "Stop and keep the answer so far"}>
        <Square aria-hidden /> {isStopping ? "Cancel now" : "Stop"}
      </Button>
    </>
  );
}

function AttachButton({ onAttach, isDisabled }: { onAttach: (files: readonly File[]) => void; isDisabled: boolean }): JSX.Element {
  const picker = useRef<HTMLInputElement>(null);
  return (
    <>
      <IconButton label="Attach files" icon={<Paperclip aria-hidden />} disabled={isDisabled} onClick={() => { picker.current?.click(); }} />
      <input
        ref={picker}
        type="file"
        multiple
        hidden
        aria-label="Files to attach"
        onChange={(event) => {
          onAttach([...(event.target.files ?? [])]);
          // Reset, so that the same file can be chosen again after it was removed.
          event.target.value = "";
        }}
      />
    </>
  );
}
