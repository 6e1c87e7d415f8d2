/** An image in full size. */
import type { JSX } from "react";

import type { FileView } from "../api";
import { useFileAddress } from "../files/useFile";
import { describeError } from "../ui/format";
import styles from "./artifacts.module.css";

export function ImageArtifact({ file }: { file: FileView }): JSX.Element {
  const { value: address, error } = useFileAddress(file);
  if (error !== null) return <p className={styles.problem} role="alert">Couldn’t load the image: {describeError(error)}</p>;
  if (address === undefined) return <p className={styles.notice} aria-busy>Loading the image…</p>;
  return <img className={styles.image} src={address} alt={file.filename} />;
}
