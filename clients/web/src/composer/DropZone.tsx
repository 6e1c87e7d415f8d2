/** Attaches files that are dropped anywhere on the conversation. */
import { useEffect, useState } from "react";
import type { JSX } from "react";

import styles from "./composer.module.css";

export function DropZone({ onDrop }: { onDrop: (files: readonly File[]) => void }): JSX.Element | null {
  const [isOver, setOver] = useState(false);
  useEffect(() => {
    const over = (event: DragEvent): void => {
      if (event.dataTransfer?.types.includes("Files") !== true) return;
      event.preventDefault();
      setOver(true);
    };
    const leave = (event: DragEvent): void => {
      // Ignore moves between elements inside the zone.
      if (event.relatedTarget === null) setOver(false);
    };
    const drop = (event: DragEvent): void => {
      if (event.dataTransfer?.types.includes("Files") !== true) return;
      event.preventDefault();
      setOver(false);
      onDrop([...event.dataTransfer.files]);
    };
    window.addEventListener("dragover", over);
    window.addEventListener("dragleave", leave);
    window.addEventListener("drop", drop);
    return () => {
      window.removeEventListener("dragover", over);
      window.removeEventListener("dragleave", leave);
      window.removeEventListener("drop", drop);
    };
  }, [onDrop]);
  return isOver ? <div className={styles.drop}><p>Drop files to attach them</p></div> : null;
}
