/** Asks for confirmation before a conversation is erased. */
import { useState } from "react";
import type { JSX } from "react";

import type { ConversationView } from "../api";
import { useBackend } from "../session/context";
import { Button } from "../ui/Button";
import { Modal, ModalActions } from "../ui/Modal";
import { describeError } from "../ui/format";
import styles from "./conversations.module.css";
import { useName } from "./useName";

interface DeleteDialogProps {
  conversation: ConversationView;
  onClose: () => void;
  returnTo: () => HTMLElement | null;
  onDeleted: () => void;
}

export function DeleteDialog({ conversation, onClose, returnTo, onDeleted }: DeleteDialogProps): JSX.Element {
  const backend = useBackend();
  const name = useName(conversation);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const erase = async (): Promise<void> => {
    setBusy(true);
    setProblem("");
    try {
      await backend.deleteConversation(conversation.conversation_id);
      onDeleted();
      onClose();
    } catch (error) {
      setBusy(false);
      setProblem(describeError(error));
    }
  };
  return (
    <Modal heading="Delete conversation?" role="alertdialog" onClose={onClose} returnTo={returnTo}>
      <p>“<bdi>{name}</bdi>” and all its messages and files will be deleted. This can’t be undone.</p>
      {problem !== "" && <p role="alert" className={styles.problem}>{problem}</p>}
      <ModalActions>
        <Button onClick={onClose}>Cancel</Button>
        <Button variant="danger" disabled={isBusy} onClick={erase}>Delete</Button>
      </ModalActions>
    </Modal>
  );
}
