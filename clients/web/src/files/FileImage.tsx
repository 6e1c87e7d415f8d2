/** An image that is a file of the conversation. */
import type { JSX } from "react";

import type { FileView } from "../api";
import { useArtifacts } from "./artifacts";
import { describeError } from "../ui/format";
import styles from "./files.module.css";
import { kindOf } from "./kinds";
import { useFileAddress } from "./useFile";

interface FileImageProps {
  file: FileView;
  alt?: string;
}

export function FileImage({ file, alt = "" }: FileImageProps): JSX.Element {
  const isImage = kindOf(file.mime, file.filename) === "image";
  return isImage ? <Picture file={file} alt={alt === "" ? file.filename : alt} /> : <span>{alt}</span>;
}

function Picture({ file, alt }: { file: FileView; alt: string }): JSX.Element {
  const { open } = useArtifacts();
  const { value: address, error } = useFileAddress(file);
  if (error !== null) return <span className={styles.missing}>Couldn’t load {file.filename}: {describeError(error)}</span>;
  return (
    <button type="button" className={styles.picture} aria-label={`Open ${alt}`} onClick={() => { open({ kind: "file", file }); }}>
      {address === undefined ? <span className={styles.waiting}>{alt}</span> : <img src={address} alt={alt} />}
    </button>
  );
}
