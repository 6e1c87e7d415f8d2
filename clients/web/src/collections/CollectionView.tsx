/** The documents of one collection; its owner adds and deletes them. */
import { Trash2 } from "lucide-react";
import { useRef, useState } from "react";
import type { JSX } from "react";

import type { Collection, KeptDocument } from "../api";
import { useBackend } from "../session/context";
import { Button, IconButton } from "../ui/Button";
import { ModalActions } from "../ui/Modal";
import { describeError, formatBytes } from "../ui/format";
import { escapeDirectionControls } from "../ui/invisibleCharacters";
import styles from "./collections.module.css";
import { useKeptDocuments, useRefreshCollections } from "./useCollections";

interface CollectionViewProps {
  collection: Collection;
  onBack: () => void;
}

export function CollectionView({ collection, onBack }: CollectionViewProps): JSX.Element {
  const backend = useBackend();
  const refresh = useRefreshCollections();
  const { items, isLoading, error } = useKeptDocuments(collection.id);
  const [share, setShare] = useState<number | null>(null);
  const [isSure, setSure] = useState(false);
  const [problem, setProblem] = useState("");
  const attempt = async (change: () => Promise<unknown>, done?: () => void): Promise<void> => {
    setProblem("");
    try {
      await change();
      done?.();
    } catch (failure) {
      setProblem(describeError(failure));
    }
    await refresh();
  };
  const add = async (files: readonly File[]): Promise<void> => {
    setShare(0);
    await attempt(() => backend.addDocuments(collection.id, files, setShare));
    setShare(null);
  };
  const shown = error !== null ? describeError(error) : problem;
  return (
    <>
      {collection.error !== undefined && <p role="alert" className={styles.problem}>These documents can’t be searched: {collection.error}</p>}
      {!isLoading && items.length === 0 && <p className={styles.none}>No documents yet. Add text, PDF or .docx files.</p>}
      <ul className={styles.list} aria-label="Documents">
        {items.map((document) => (
          <DocumentRow
            key={document.id}
            document={document}
            onDelete={collection.is_mine ? () => attempt(() => backend.deleteDocument(collection.id, document.id)) : undefined}
          />
        ))}
      </ul>
      {share !== null && <p role="status">Uploading: {Math.round(share * 100)} %</p>}
      {shown !== "" && <p role="alert" className={styles.problem}>{shown}</p>}
      <ModalActions>
        {collection.is_mine && (
          <>
            <Button
              variant={isSure ? "danger" : "quiet"}
              onClick={() => { if (isSure) void attempt(() => backend.deleteCollection(collection.id), onBack); else setSure(true); }}
            >
              {isSure ? "Delete it and all its documents" : "Delete collection"}
            </Button>
            <AddFiles isBusy={share !== null} onFiles={(files) => { void add(files); }} />
          </>
        )}
        <Button onClick={onBack}>Back</Button>
      </ModalActions>
    </>
  );
}

function AddFiles({ isBusy, onFiles }: { isBusy: boolean; onFiles: (files: readonly File[]) => void }): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Files to add"
        onChange={({ target }) => {
          const files = Array.from(target.files ?? []);
          // So that the same files can be chosen again.
          target.value = "";
          if (files.length > 0) onFiles(files);
        }}
      />
      <Button variant="primary" disabled={isBusy} onClick={() => { input.current?.click(); }}>Add files</Button>
    </>
  );
}

interface DocumentRowProps {
  document: KeptDocument;
  onDelete: (() => Promise<void>) | undefined;
}

function DocumentRow({ document, onDelete }: DocumentRowProps): JSX.Element {
  const name = escapeDirectionControls(document.name);
  return (
    <li className={styles.document}>
      <bdi className={styles.name}>{name}</bdi>
      <span className={styles.about}>{formatBytes(document.size)}{document.state === "waiting" && ", being indexed"}</span>
      {document.error !== undefined && <span className={styles.problem}>{document.error}</span>}
      {onDelete !== undefined && <IconButton label={`Delete ${name}`} icon={<Trash2 aria-hidden />} onClick={() => { void onDelete(); }} />}
    </li>
  );
}
