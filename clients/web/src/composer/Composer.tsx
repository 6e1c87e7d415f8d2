/**
 * The message field: Enter sends, Shift+Enter adds a line, Escape stops the turn. On touch screens Enter adds a line.
 */
import { useCallback, useEffect, useImperativeHandle, useRef, useState } from "react";
import type { ClipboardEvent, JSX, Ref } from "react";

import { isIncomplete } from "../agents/agents";
import type { Accepted } from "../api";
import { useSession } from "../session/context";
import { escapeDirectionControls } from "../ui/invisibleCharacters";
import { isTouch, submitByEnter } from "../ui/enterKey";
import { saveUnsentFiles } from "../session/unsentFiles";
import { AgentGone } from "./AgentGone";
import { checkLength } from "./attachments";
import { AttachmentTray } from "./AttachmentTray";
import { ComposerButtons } from "./ComposerButtons";
import styles from "./composer.module.css";
import { DropZone } from "./DropZone";
import { loadDraft, saveDraft } from "./drafts";
import { insertText, removeSent } from "./insertion";
import type { Insertion } from "./insertion";
import { useAttachments, useLimits } from "./useAttachments";
import { useSending } from "./useSending";
import type { Draft } from "./useSending";

export interface ComposerHandle {
  focus: () => void;
  /** Send a starter. If it is incomplete, or if there is a draft, it is put into the field instead. */
  start: (starter: string) => void;
}

interface ComposerProps {
  ref?: Ref<ComposerHandle>;
  /** `new` creates a conversation. */
  conversationId: string;
  /** The agent of a new conversation; undefined for the server's default. */
  bundleId?: string | undefined;
  /** Named in the empty field. */
  agentTitle?: string | undefined;
  /** Whether a turn is running; messages then go to it. */
  isBusy: boolean;
  isStopping: boolean;
  /** The last text that was inserted from elsewhere. */
  inserted?: Insertion | null;
  onAccepted: (accepted: Accepted, draft: Draft) => void;
  onStop: () => void;
  /** Open the page for a new conversation; undefined on that page. */
  onNew?: () => void;
}

export function Composer(props: ComposerProps): JSX.Element {
  const { ref, conversationId, bundleId, agentTitle, isBusy, isStopping, inserted = null, onAccepted, onStop, onNew } = props;
  const { scope, unsentFiles } = useSession();
  const [text, setText] = useState(() => loadDraft(sessionStorage, scope, conversationId));
  const limits = useLimits();
  const attachments = useAttachments(conversationId, limits);
  const sending = useSending(conversationId, onAccepted);
  const field = useRef<HTMLTextAreaElement>(null);
  const tooLong = checkLength(text, limits);
  const maySend = (written: string): boolean => (written.trim() !== "" || attachments.items.length > 0) && !sending.isSending && checkLength(written, limits) === "";
  const canSend = maySend(text);
  useEffect(() => { saveDraft(sessionStorage, scope, conversationId, text); }, [scope, conversationId, text]);
  useEffect(() => { field.current?.focus({ preventScroll: true }); }, []);
  const [lastInserted, setLastInserted] = useState(inserted);
  if (inserted !== lastInserted) {
    setLastInserted(inserted);
    if (inserted !== null) setText(insertText(text, inserted.text));
  }
  useEffect(() => {
    // Keep the focus in a text field if it was in one; otherwise leave it where it is.
    if (inserted === null || document.activeElement !== document.body) return;
    field.current?.focus({ preventScroll: true });
    field.current?.setSelectionRange(field.current.value.length, field.current.value.length);
  }, [inserted]);
  const { refuse } = attachments;
  useEffect(() => { refuse(sending.refusals); }, [sending.refusals, refuse]);

  const submit = async (kind?: "followup" | "steer", written = text): Promise<void> => {
    if (!maySend(written)) return;
    const sent = attachments.items;
    const files = sent.map((item) => item.file);
    const draft = { text: written, files, ...(kind === undefined ? {} : { kind }), ...(bundleId === undefined ? {} : { bundleId }) };
    if (await sending.send(draft)) {
      setText((now) => removeSent(now, written));
      // The page may switch to the new conversation before this is rendered.
      saveDraft(sessionStorage, scope, conversationId, "");
      // Files that were dropped or pasted meanwhile belong to the next message.
      attachments.remove(sent);
    }
    field.current?.focus({ preventScroll: true });
  };
  const focus = (): void => { field.current?.focus({ preventScroll: true }); };
  const start = (starter: string): void => {
    if (sending.isSending) return;
    const isWhole = !isIncomplete(starter);
    setText(insertText(text, isWhole ? starter : `${starter.trimEnd()} `));
    if (text.trim() === "" && isWhole) void submit(undefined, starter);
    focus();
  };
  useImperativeHandle(ref, () => ({ focus, start }));
  const moveToNew = (): void => {
    const files = attachments.items.map((item) => item.file);
    saveDraft(sessionStorage, scope, "new", insertText(loadDraft(sessionStorage, scope, "new"), text));
    saveUnsentFiles(unsentFiles, "new", [...(unsentFiles.get("new") ?? []), ...files]);
    setText("");
    attachments.remove(attachments.items);
    onNew?.();
  };
  const { add } = attachments;
  const { forgetProblem } = sending;
  const attach = useCallback((files: readonly File[]) => {
    forgetProblem();
    add(files);
    field.current?.focus({ preventScroll: true });
  }, [add, forgetProblem]);
  const problem = [tooLong, sending.isAgentGone ? "" : sending.problem, attachments.problem].find((each) => each !== "") ?? "";
  return (
    <form className={styles.composer} aria-label="Message" onSubmit={(event) => { event.preventDefault(); void submit(isBusy ? "followup" : undefined); }}>
      <DropZone onDrop={attach} />
      {sending.isAgentGone && <AgentGone onMove={onNew === undefined ? undefined : moveToNew} />}
      {problem !== "" && <p role="alert" className={styles.problem}>{problem}</p>}
      <div className={styles.box}>
        <AttachmentTray items={attachments.items} isSending={sending.isSending} progress={sending.progress} onRemove={(item) => { attachments.remove([item]); }} />
        <textarea
          ref={field}
          className={styles.field}
          aria-label="Your message"
          placeholder={isBusy ? "Add to this while it works…" : agentTitle === undefined ? "Ask anything…" : `Ask \u2068${escapeDirectionControls(agentTitle)}\u2069…`}
          dir="auto"
          data-composer
          enterKeyHint={isTouch() ? "enter" : "send"}
          rows={1}
          value={text}
          readOnly={sending.isSending}
          onChange={(event) => { setText(event.target.value); }}
          onKeyDown={(event) => { submitByEnter(event, () => submit(isBusy ? "followup" : undefined)); }}
          onPaste={(event) => { attachPasted(event, attach); }}
        />
        <ComposerButtons
          canSend={canSend}
          isBusy={isBusy}
          isStopping={isStopping}
          isSending={sending.isSending}
          onAttach={attach}
          onSteer={() => submit("steer")}
          onStop={onStop}
          onAbort={sending.abort}
        />
      </div>
    </form>
  );
}

function attachPasted(event: ClipboardEvent, attach: (files: readonly File[]) => void): void {
  const files = [...event.clipboardData.files];
  if (files.length === 0) return;
  event.preventDefault();
  attach(files);
}
