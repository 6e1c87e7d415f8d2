/** The files of the message being written, with any error that the server reported for each. */
import { Paperclip, X } from "lucide-react";
import { useEffect, useState } from "react";
import type { JSX } from "react";

import { IconButton } from "../ui/Button";
import { escapeDirectionControls } from "../ui/invisibleCharacters";
import { formatBytes } from "../ui/format";
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
            <Thumbnail file={item.file} />
            <span className={styles.name} dir="auto">{escapeDirectionControls(item.file.name)}</span>
            <span className={styles.size}>{formatBytes(item.file.size)}</span>
            {item.refusal !== "" && <span className="visually-hidden">rejected: {item.refusal}</span>}
            <IconButton label={`Remove ${escapeDirectionControls(item.file.name)}`} icon={<X aria-hidden />} disabled={isSending} onClick={() => { onRemove(item); }} />
          </li>
        ))}
      </ul>
      {isSending && <progress className={styles.progress} aria-label="Sending files" value={progress} max={1} />}
    </>
  );
}

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
/** Scaling down larger images would take too long. */
const MAX_THUMBNAIL_BYTES = 10_000_000;

/** An image as a thumbnail, any other file as a paper clip. */
function Thumbnail({ file }: { file: File }): JSX.Element {
  const [address, setAddress] = useState("");
  useEffect(() => {
    if (!PICTURES.has(file.type) || file.size > MAX_THUMBNAIL_BYTES) return;
    const made = URL.createObjectURL(file);
    // The address is created here because it has to be revoked here.
    // eslint-disable-next-line react-hooks/set-state-in-effect
    setAddress(made);
    return () => { URL.revokeObjectURL(made); };
  }, [file]);
  if (address === "") return <Paperclip aria-hidden />;
  return <img className={styles.thumbnail} src={address} alt="" onError={() => { setAddress(""); }} />;
}
