/** The buttons below the field: attach, and send, or while a turn goes on add, redirect and stop. */
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
      <span className={styles.hint} aria-hidden>{isBusy ? "Enter adds · Esc stops" : "Enter sends · Shift+Enter breaks the line"}</span>
      {isSending && <Button onClick={onAbort}><X aria-hidden /> Don’t send</Button>}
      {isBusy ? <BusyButtons {...props} /> : <IconButton label="Send" icon={<ArrowUp aria-hidden />} look="primary" type="submit" disabled={!canSend} />}
    </div>
  );
}

function BusyButtons({ canSend, isStopping, onSteer, onStop }: ComposerButtonsProps): JSX.Element {
  return (
    <>
      {canSend && (
        <>
          <Button type="submit" title="The agent takes it up beside what it does"><Plus aria-hidden /> Add</Button>
          <Button onClick={onSteer} title="The agent leaves what it does and goes by this"><CornerUpRight aria-hidden /> Redirect</Button>
        </>
      )}
      <Button look="primary" onClick={onStop} title={isStopping ? "End the turn now, whatever it is doing" : "Stop with what there is"}>
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
          // The same file may be chosen again after it was removed.
          event.target.value = "";
        }}
      />
    </>
  );
}
