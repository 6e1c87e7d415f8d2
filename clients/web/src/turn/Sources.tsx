/** The sources that an answer cites. Nothing is fetched from them, not even their icons. */
import type { JSX } from "react";

import type { CitationView } from "../api";
import { hostOf, readLink } from "../markdown/addresses";
import { escapeDirectionControls } from "../ui/invisibleCharacters";
import styles from "./turn.module.css";

export function Sources({ citations }: { citations: readonly CitationView[] }): JSX.Element | null {
  if (citations.length === 0) return null;
  return (
    <section aria-label="Sources">
      <h3 className={styles.heading}>Sources</h3>
      <ol className={styles.sources}>
        {citations.map((cited) => <li key={cited.sid}><SourceCard cited={cited} /></li>)}
      </ol>
    </section>
  );
}

function SourceCard({ cited }: { cited: CitationView }): JSX.Element {
  const target = readLink(cited.url);
  const date = cited.published_time_iso?.slice(0, 10);
  const place = target.kind === "web" ? hostOf(target.href) : cited.url === "" ? cited.source_type : cited.url;
  const content = (
    <>
      <span className={styles.sid}>{cited.sid}</span>
      <span className={styles.sourceTitle} dir="auto">{cited.title}</span>
      <span className={styles.host}><bdi>{escapeDirectionControls(place)}</bdi>{date !== undefined && ` · ${date}`}</span>
    </>
  );
  if (target.kind !== "web") return <span className={styles.source}>{content}</span>;
  return <a className={styles.source} href={target.href} target="_blank" rel="noopener noreferrer" referrerPolicy="no-referrer">{content}</a>;
}
