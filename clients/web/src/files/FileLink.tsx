/** A link that opens a file beside the conversation. */
import type { JSX, ReactNode } from "react";

import type { FileView } from "../api";
import { useArtifacts } from "./artifacts";
import styles from "./files.module.css";

export function FileLink({ file, children }: { file: FileView; children: ReactNode }): JSX.Element {
  const { open } = useArtifacts();
  return (
    <button type="button" className={styles.link} onClick={() => { open({ kind: "file", file }); }}>
      {children}
    </button>
  );
}
