/** An image in its full size. */
import type { JSX } from "react";

import type { FileView } from "../api";
import { useFileAddress } from "../files/useFile";
import styles from "./artifacts.module.css";

export function ImageArtifact({ file }: { file: FileView }): JSX.Element {
  const { value: address, error } = useFileAddress(file);
  if (error !== null) return <p className={styles.problem} role="alert">The image can’t be shown: {error.message}</p>;
  if (address === undefined) return <p className={styles.notice} aria-busy>Reading the image…</p>;
  return <img className={styles.image} src={address} alt={file.filename} />;
}
