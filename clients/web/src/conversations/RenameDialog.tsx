/** Changes the title of a conversation. */
import { useState } from "react";
import type { JSX } from "react";

import type { ConversationView } from "../api";
import { useBackend } from "../session/context";
import { Button } from "../ui/Button";
import { Modal, ModalActions } from "../ui/Modal";
import { describeError } from "../ui/format";
import styles from "./conversations.module.css";

const MAX_TITLE_CHARS = 200;

interface RenameDialogProps {
  conversation: ConversationView;
  onClose: () => void;
  returnTo: () => HTMLElement | null;
  onChanged: () => void;
}

export function RenameDialog({ conversation, onClose, returnTo, onChanged }: RenameDialogProps): JSX.Element {
  const backend = useBackend();
  const [title, setTitle] = useState(conversation.title);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const save = async (): Promise<void> => {
    setBusy(true);
    setProblem("");
    try {
      await backend.patchConversation(conversation.conversation_id, { title: title.trim() });
      onChanged();
      onClose();
    } catch (error) {
      setBusy(false);
      setProblem(describeError(error));
    }
  };
  return (
    <Modal heading="Rename conversation" onClose={onClose} returnTo={returnTo}>
      <form className={styles.dialog} onSubmit={(event) => { event.preventDefault(); void save(); }}>
        <label>
          <span>Title</span>
          <input dir="auto" value={title} maxLength={MAX_TITLE_CHARS} onChange={(event) => { setTitle(event.target.value); }} />
        </label>
        {problem !== "" && <p role="alert" className={styles.problem}>{problem}</p>}
        <ModalActions>
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" type="submit" disabled={isBusy || title.trim() === ""}>Rename</Button>
        </ModalActions>
      </form>
    </Modal>
  );
}
