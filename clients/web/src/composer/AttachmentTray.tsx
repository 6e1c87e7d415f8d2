/** The files of the message that is being written, with what the server said of them. */
import { Paperclip, X } from "lucide-react";
import { useEffect, useState } from "react";
import type { JSX } from "react";

import { IconButton } from "../ui/Button";
import { showTurning } from "../ui/unseen";
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
            <Thumbnail file={item.file} />
            <span className={styles.name} dir="auto">{showTurning(item.file.name)}</span>
            <span className={styles.size}>{sayBytes(item.file.size)}</span>
            {item.refusal !== "" && <span className="visually-hidden">refused: {item.refusal}</span>}
            <IconButton label={`Remove ${showTurning(item.file.name)}`} icon={<X aria-hidden />} disabled={isSending} onClick={() => { onRemove(item); }} />
          </li>
        ))}
      </ul>
      {isSending && <progress className={styles.progress} aria-label="Sending files" value={progress} max={1} />}
    </>
  );
}

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
/** A larger picture takes the page too long to draw as small as this. */
const MAX_THUMBNAIL_BYTES = 10_000_000;

/** A picture as a picture, anything else as a paper clip. */
function Thumbnail({ file }: { file: File }): JSX.Element {
  const [address, setAddress] = useState("");
  useEffect(() => {
    if (!PICTURES.has(file.type) || file.size > MAX_THUMBNAIL_BYTES) return;
    const made = URL.createObjectURL(file);
    // The address is made here because it has to be given back here.
    // eslint-disable-next-line react-hooks/set-state-in-effect
    setAddress(made);
    return () => { URL.revokeObjectURL(made); };
  }, [file]);
  if (address === "") return <Paperclip aria-hidden />;
  return <img className={styles.thumbnail} src={address} alt="" onError={() => { setAddress(""); }} />;
}
