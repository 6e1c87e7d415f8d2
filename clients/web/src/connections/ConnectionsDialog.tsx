/** The user's accounts at other services that agents can use; each can be disconnected. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Unplug } from "lucide-react";
import { useState } from "react";
import type { JSX } from "react";

import type { ConnectedAccount } from "../api";
import styles from "../collections/collections.module.css";
import { useBackend } from "../session/context";
import { Button, IconButton } from "../ui/Button";
import { Modal, ModalActions } from "../ui/Modal";
import { describeError } from "../ui/format";
import { escapeDirectionControls } from "../ui/invisibleCharacters";

const KEY = "connections";

interface ConnectionsDialogProps {
  onClose: () => void;
  returnTo: () => HTMLElement | null;
}

export function ConnectionsDialog({ onClose, returnTo }: ConnectionsDialogProps): JSX.Element {
  const backend = useBackend();
  const queries = useQueryClient();
  // Accounts are connected on pages of other services, so that what was loaded before may be old.
  const { data, error } = useQuery({ queryKey: [KEY], queryFn: ({ signal }) => backend.listConnections(signal), staleTime: 0 });
  const [problem, setProblem] = useState("");
  const disconnect = async (account: ConnectedAccount): Promise<void> => {
    setProblem("");
    try {
      await backend.deleteConnection(account);
    } catch (failure) {
      setProblem(describeError(failure));
    }
    await queries.invalidateQueries({ queryKey: [KEY] });
  };
  const shown = error !== null ? describeError(error) : problem;
  return (
    <Modal heading="Connected accounts" onClose={onClose} returnTo={returnTo}>
      <p>Agents use these accounts on your behalf. If you disconnect one, the agent asks you again when it needs it.</p>
      {shown !== "" && <p role="alert" className={styles.problem}>{shown}</p>}
      {data?.items.length === 0 && <p className={styles.none}>No accounts yet. Agents ask when they need one.</p>}
      <ul className={styles.list} aria-label="Accounts">
        {data?.items.map((account) => {
          const title = escapeDirectionControls(account.title);
          return (
            <li key={`${account.bundle_id}/${account.server}`} className={styles.document}>
              <bdi className={styles.name}>{title}</bdi>
              <span className={styles.about}>for the agent {account.bundle_id}</span>
              <IconButton label={`Disconnect ${title}`} icon={<Unplug aria-hidden />} onClick={() => { void disconnect(account); }} />
            </li>
          );
        })}
      </ul>
      <ModalActions><Button onClick={onClose}>Close</Button></ModalActions>
    </Modal>
  );
}
