/** What a commit changed: its files, each with its lines. */
import { useMemo, useState } from "react";
import type { JSX, ReactNode } from "react";

import { ProblemError } from "../api";
import type { Commit, DiffFile } from "../api";
import { Button } from "../ui/Button";
import { Disclosure } from "../ui/Disclosure";
import { describeError, formatCount, lookUp } from "../ui/format";
import { chooseUnfolded, cutHunks, joinDiff } from "./diff";
import type { DiffLine, FileDiff, Hunk } from "./diff";
import styles from "./project.module.css";
import { showLine, showPath } from "./text";
import { useDiff } from "./useWorkspace";
import type { Version } from "./useWorkspace";

const SHOWN_FILES = 100;
const SHOWN_LINES = 500;
const UNFOLDED_LINES = 400;
/** The server's status for differences that are too long. */
const TOO_LONG = 422;
const CHANGES = { added: "Added", modified: "Modified", deleted: "Deleted", renamed: "Renamed" } as const;

type OpenFile = (path: string) => void;

export function Changes({ conversationId, commit, onFile }: { conversationId: string; commit: Commit; onFile: OpenFile }): JSX.Element {
  const version = { conversationId, commit: commit.commit };
  const { value, error } = useDiff(version);
  const files = useMemo(() => value && joinDiff(value.files, value.diff), [value]);
  if (isTooLong(error)) return <OneByOne version={version} commit={commit} onFile={onFile} />;
  if (error !== null) return <p className={styles.problem} role="alert">Couldn’t load the changes: {describeError(error)}</p>;
  if (files === undefined) return <p className={styles.soft} aria-busy>Loading…</p>;
  return <FileDiffs files={files} onFile={onFile} />;
}

function isTooLong(error: Error | null): boolean {
  return error instanceof ProblemError && error.status === TOO_LONG;
}

function FileDiffs({ files, onFile }: { files: readonly FileDiff[]; onFile: OpenFile }): JSX.Element {
  const [limit, setLimit] = useState(SHOWN_FILES);
  const unfolded = useMemo(() => chooseUnfolded(files, UNFOLDED_LINES), [files]);
  if (files.length === 0) return <p className={styles.soft}>No file differs.</p>;
  return (
    <>
      <ul className={styles.changes} aria-label="Changed files">
        {files.slice(0, limit).map(({ file, hunks }, at) => (
          <li key={file.path}>
            <Disclosure className={styles.change} startsOpen={unfolded[at] === true} summary={<Summary {...file} />}>
              {() => <FileLines file={file} hunks={hunks} onFile={onFile} />}
            </Disclosure>
          </li>
        ))}
      </ul>
      {files.length > limit && <Button onClick={() => { setLimit(limit + SHOWN_FILES); }}>Show more of {formatCount(files.length, "file")}</Button>}
    </>
  );
}

/** The files of a commit whose differences are too long to load together: each is loaded when it is unfolded. */
function OneByOne({ version, commit, onFile }: { version: Version; commit: Commit; onFile: OpenFile }): JSX.Element {
  const { files, more_files: more } = commit;
  return (
    <>
      <p>These changes are too long to show together. Unfold a file to see what changed in it.</p>
      <ul className={styles.changes} aria-label="Changed files">
        {files.map((file) => (
          <li key={file.path}>
            <Disclosure className={styles.change} summary={<Summary path={file.path} change={file.change} />}>
              {() => <OneFile version={version} path={file.path} onFile={onFile} />}
            </Disclosure>
          </li>
        ))}
      </ul>
      {more > 0 && <p className={styles.soft}>{formatCount(more, "more file")} can’t be shown here. Clone the project to see them.</p>}
    </>
  );
}

function OneFile({ version, path, onFile }: { version: Version; path: string; onFile: OpenFile }): JSX.Element {
  const { value, error } = useDiff(version, path);
  const files = useMemo(() => value && joinDiff(value.files, value.diff), [value]);
  if (isTooLong(error)) return <p className={styles.soft}>The changes of this file are too long to show.</p>;
  if (error !== null) return <p className={styles.problem} role="alert">Couldn’t load the changes: {describeError(error)}</p>;
  if (files === undefined) return <p className={styles.soft} aria-busy>Loading…</p>;
  return <>{files.map(({ file, hunks }) => <FileLines key={file.path} file={file} hunks={hunks} onFile={onFile} />)}</>;
}

type SummaryProps = Pick<DiffFile, "path" | "old_path" | "change" | "added_lines" | "removed_lines">;

function Summary({ path, old_path: oldPath, change, added_lines: added, removed_lines: removed }: SummaryProps): JSX.Element {
  return (
    <>
      <span className={styles.name}>
        {oldPath !== undefined && <><bdi>{showPath(oldPath)}</bdi> → </>}
        <bdi>{showPath(path)}</bdi>
      </span>{" "}
      <span className={styles.kind}>{lookUp<string>(CHANGES, change, "Changed")}</span>{" "}
      {added !== undefined && <Count sign="+" kind={styles.plus} count={added} what="added" />}{" "}
      {removed !== undefined && <Count sign="−" kind={styles.minus} count={removed} what="removed" />}
    </>
  );
}

function Count({ sign, kind, count, what }: { sign: string; kind: string | undefined; count: number; what: string }): JSX.Element {
  return (
    <span className={kind}>
      <span aria-hidden dir="ltr">{sign}{count.toLocaleString("en")}</span>
      <span className="visually-hidden">{formatCount(count, "line")} {what}</span>
    </span>
  );
}

function FileLines({ file, hunks, onFile }: FileDiff & { onFile: OpenFile }): JSX.Element {
  const [limit, setLimit] = useState(SHOWN_LINES);
  const { hunks: shown, more } = useMemo(() => cutHunks(hunks, limit), [hunks, limit]);
  return (
    <div className={styles.fileLines}>
      {hunks.length > 0 ? <Lines label={`Changes of ${showPath(file.path)}`} hunks={shown} /> : <p className={styles.soft}>{describeNoLines(file)}</p>}
      {more > 0 && <Button onClick={() => { setLimit(limit + SHOWN_LINES); }}>Show more of {formatCount(more, "line")}</Button>}
      {file.change !== "deleted" && <Button variant="quiet" onClick={() => { onFile(file.path); }}>Open the file</Button>}
    </div>
  );
}

function describeNoLines(file: DiffFile): string {
  if (file.binary) return "This is a binary or very large file: its lines are not compared.";
  if (file.change === "renamed") return "Only its name changed.";
  return file.added_lines === 0 && file.removed_lines === 0 ? "The file is empty." : "Its lines can’t be shown.";
}

function Lines({ label, hunks }: { label: string; hunks: readonly Hunk[] }): JSX.Element {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls has to take focus
    <div className={styles.diff} role="region" aria-label={label} tabIndex={0} dir="ltr">
      <table>
        {hunks.map((hunk, at) => (
          <tbody key={at}>
            <tr className={styles.hunk}><td colSpan={4}>{showLine(hunk.head)}</td></tr>
            {hunk.lines.map((line, number) => <Line key={number} line={line} />)}
          </tbody>
        ))}
      </table>
    </div>
  );
}

const SIGNS: Record<DiffLine["kind"], ReactNode> = {
  added: <><span aria-hidden>+</span><span className="visually-hidden">Added</span></>,
  removed: <><span aria-hidden>−</span><span className="visually-hidden">Removed</span></>,
  same: null,
  note: null,
};

function Line({ line: { kind, text, before, after } }: { line: DiffLine }): JSX.Element {
  return (
    <tr className={styles[kind]}>
      <td className={styles.number}>{before}</td>
      <td className={styles.number}>{after}</td>
      <td className={styles.sign}>{SIGNS[kind]}</td>
      <td className={styles.line}><code>{showLine(text)}</code></td>
    </tr>
  );
}
