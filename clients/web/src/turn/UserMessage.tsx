/** The user's message as written; long texts are collapsed. */
import { use, useState } from "react";
import type { JSX } from "react";

import type { FileView } from "../api";
import { FileCard } from "../files/FileCard";
import { FileImage } from "../files/FileImage";
import { kindOf } from "../files/kinds";
import { Button } from "../ui/Button";
import { PaperContext } from "../ui/printing";
import styles from "./turn.module.css";

const LONG_CHARS = 2_000;
const LONG_LINES = 30;

interface PersonMessageProps {
  text: string;
  files: readonly FileView[];
}

export function UserMessage({ text, files }: PersonMessageProps): JSX.Element | null {
  const isOnPaper = use(PaperContext);
  const [isWhole, setWhole] = useState(isOnPaper);
  if (text === "" && files.length === 0) return null;
  const isLong = text.length > LONG_CHARS || text.split("\n", LONG_LINES + 1).length > LONG_LINES;
  return (
    <div className={styles.person} role="group" aria-label="You said">
      {text !== "" && <p className={styles.said} dir="auto">{isLong && !isWhole ? `${cut(text)}…` : text}</p>}
      {isLong && <Button variant="quiet" aria-expanded={isWhole} onClick={() => { setWhole(!isWhole); }}>{isWhole ? "Show less" : "Show all"}</Button>}
      {files.length > 0 && (
        <ul className={styles.attached} aria-label="Attachments">
          {files.map((file) => (
            <li key={file.artifact_id}>
              {kindOf(file.mime, file.filename) === "image" ? <FileImage file={file} /> : <FileCard file={file} />}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function cut(text: string): string {
  return text.slice(0, LONG_CHARS).split("\n").slice(0, LONG_LINES).join("\n");
}
