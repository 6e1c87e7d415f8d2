/** The documents that agents search in every conversation: the list of collections, and one of them. */
import { useId, useState } from "react";
import type { JSX } from "react";

import type { Collection } from "../api";
import { useBackend } from "../session/context";
import { Button } from "../ui/Button";
import { Modal, ModalActions } from "../ui/Modal";
import { describeError, formatCount } from "../ui/format";
import { escapeDirectionControls } from "../ui/invisibleCharacters";
import { CollectionView } from "./CollectionView";
import styles from "./collections.module.css";
import { useCollections, useRefreshCollections } from "./useCollections";

const MAX_TITLE_CHARS = 200;

interface CollectionsDialogProps {
  onClose: () => void;
  returnTo: () => HTMLElement | null;
}

export function CollectionsDialog({ onClose, returnTo }: CollectionsDialogProps): JSX.Element {
  const { items, isLoading, error } = useCollections();
  const [openId, setOpenId] = useState<string | null>(null);
  const open = items.find(({ id }) => id === openId);
  return (
    <Modal heading={open === undefined ? "Documents" : escapeDirectionControls(open.title)} onClose={onClose} returnTo={returnTo}>
      {open === undefined ? (
        <>
          <p>Agents can search the documents of these collections in every conversation.</p>
          {error !== null && <p role="alert" className={styles.problem}>{describeError(error)}</p>}
          {!isLoading && error === null && items.length === 0 && <p className={styles.none}>No collections yet.</p>}
          <ul className={styles.list}>
            {items.map((collection) => (
              <li key={collection.id}>
                <button type="button" className={styles.row} onClick={() => { setOpenId(collection.id); }}>
                  <bdi>{escapeDirectionControls(collection.title)}</bdi>
                  <span className={styles.about}>{describe(collection)}</span>
                </button>
              </li>
            ))}
          </ul>
          <NewCollection onCreated={setOpenId} />
          <ModalActions><Button onClick={onClose}>Close</Button></ModalActions>
        </>
      ) : <CollectionView collection={open} onBack={() => { setOpenId(null); }} />}
    </Modal>
  );
}

function describe({ documents, waiting, scope, is_mine: isMine, error }: Collection): string {
  const parts = [formatCount(documents, "document")];
  if (waiting > 0) parts.push(`${waiting} being indexed`);
  if (error !== undefined) parts.push("not indexed");
  if (scope === "project") parts.push(isMine ? "shared with the project" : "shared by others");
  return parts.join(", ");
}

function NewCollection({ onCreated }: { onCreated: (id: string) => void }): JSX.Element {
  const backend = useBackend();
  const refresh = useRefreshCollections();
  const id = useId();
  const [title, setTitle] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const create = async (): Promise<void> => {
    setBusy(true);
    setProblem("");
    try {
      const created = await backend.createCollection(title.trim());
      await refresh();
      onCreated(created.id);
    } catch (error) {
      setBusy(false);
      setProblem(describeError(error));
    }
  };
  return (
    <form className={styles.form} onSubmit={(event) => { event.preventDefault(); void create(); }}>
      <label htmlFor={id}>New collection</label>
      <input id={id} dir="auto" value={title} maxLength={MAX_TITLE_CHARS} placeholder="Title" onChange={(event) => { setTitle(event.target.value); }} />
      <Button variant="primary" type="submit" disabled={isBusy || title.trim() === ""}>Create</Button>
      {problem !== "" && <p role="alert" className={styles.problem}>{problem}</p>}
    </form>
  );
}
