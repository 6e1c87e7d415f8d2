/** The commits of the project, newest first. */
import type { JSX } from "react";

import type { Commit } from "../api";
import { Button } from "../ui/Button";
import { formatAge, formatCount } from "../ui/format";
import { useNow } from "../ui/useNow";
import styles from "./project.module.css";
import { showPath } from "./text";
import type { Commits } from "./useCommits";

export function countFiles({ files, more_files: more }: Commit): number {
  return files.length + more;
}

export function CommitList({ list, chosen, onChoose }: { list: Commits; chosen: string; onChoose: (commit: string) => void }): JSX.Element {
  const now = useNow();
  return (
    <>
      <ol className={styles.commits} aria-label="Commits">
        {list.commits?.map((commit) => (
          <li key={commit.commit}>
            <button type="button" className={styles.commit} aria-current={commit.commit === chosen} onClick={() => { onChoose(commit.commit); }}>
              <span className={styles.subject}><bdi>{showPath(commit.subject)}</bdi></span>{" "}
              <span className={styles.soft}>
                <time dateTime={commit.accepted_at} title={new Date(commit.accepted_at).toLocaleString("en")}>{formatAge(Date.parse(commit.accepted_at), now)}</time>
                {" · "}{formatCount(countFiles(commit), "file")}{" · "}<code>{commit.commit.slice(0, 7)}</code>
              </span>
            </button>
          </li>
        ))}
      </ol>
      {list.hasMore && <Button disabled={list.isLoadingMore} onClick={list.loadMore}>{list.isLoadingMore ? "Loading…" : "Load more"}</Button>}
    </>
  );
}
