/** The files of the message that is being written, with what the server said of them. */
import { Paperclip, X } from "lucide-react";
import type { JSX } from "react";

import { IconButton } from "../ui/Button";
import { sayBytes } from "../ui/wording";
import type { Attachment } from "./attachments";
import styles from "./composer.module.css";

interface AttachmentTrayProps {
  items: readonly Attachment[];
  isSending: boolean;
  progress: number;
  onRemove: (item: Attachment) => void;
}

export function AttachmentTray({ items, isSending, progress, onRemove }: AttachmentTrayProps): JSX.Element | null {
  if (items.length === 0) return null;
  return (
    <>
      <ul className={styles.tray} aria-label="Files to send">
        {items.map((item) => (
          <li key={item.id} className={item.refusal === "" ? styles.file : styles.refused}>
            <Paperclip aria-hidden />
            <span className={styles.name}>{item.file.name}</span>
            <span className={styles.size}>{sayBytes(item.file.size)}</span>
            {item.refusal !== "" && <span className="visually-hidden">refused</span>}
            <IconButton label={`Remove ${item.file.name}`} icon={<X aria-hidden />} disabled={isSending} onClick={() => { onRemove(item); }} />
          </li>
        ))}
      </ul>
      {isSending && <progress className={styles.progress} aria-label="Sending files" value={progress} max={1} />}
    </>
  );
}
