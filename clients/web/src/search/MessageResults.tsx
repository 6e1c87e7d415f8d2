/** Messages that match the search: an excerpt of each, with its conversation and time. */
import { useEffect, useId, useRef } from "react";
import type { JSX, MouseEvent } from "react";

import type { SearchHit } from "../api";
import { useSession } from "../session/context";
import { writeRoute } from "../routing/route";
import { Button } from "../ui/Button";
import { describeError, formatAge, formatCount, formatName } from "../ui/format";
import { cutSnippet } from "./snippets";
import styles from "./search.module.css";
import { useMessageSearch } from "./useMessageSearch";
import type { MessageSearch } from "./useMessageSearch";

export type OpenTurn = (conversationId: string, turnId: string) => void;

interface MessageResultsProps {
  search: string;
  /** The only conversation to search; null for all. */
  conversationId: string | null;
  now: number;
  onOpen: OpenTurn;
}

const WHO: Readonly<Record<SearchHit["target"], string>> = { user: "You", assistant: "Answer", attachment: "File", summary: "Summary", notes: "Note" };

export function MessageResults({ search, conversationId, now, onOpen }: MessageResultsProps): JSX.Element {
  const found = useMessageSearch(search, conversationId);
  const { hits, isBusy, isLoadingMore, error, hasMore, loadMore, tryAgain } = found;
  const heading = useId();
  const list = useRef<HTMLUListElement>(null);
  const readsOnAt = useRef<number | null>(null);
  const readOn = async (): Promise<void> => {
    readsOnAt.current = hits.length;
    await loadMore();
  };
  // The response may arrive some frames before it is rendered, so wait for the new rows. The button may be gone by
  // then: move the focus to the first new message, unless the user is typing elsewhere.
  useEffect(() => {
    const at = readsOnAt.current;
    if (at === null || hits.length <= at) return;
    readsOnAt.current = null;
    if (document.activeElement instanceof HTMLInputElement || document.activeElement instanceof HTMLTextAreaElement) return;
    list.current?.children[at]?.querySelector("a")?.focus();
  }, [hits]);
  const said = describeResults(found);
  return (
    <section className={styles.found} aria-labelledby={heading} aria-busy={isBusy}>
      <h2 id={heading} className={styles.heading}>{conversationId === null ? "In messages" : "In this conversation"}</h2>
      <p role="status" className={hits.length > 0 && !isBusy ? "visually-hidden" : styles.said}>{said}</p>
      {error === null ? null : (
        <p role="alert" className={styles.problem}>{describeError(error)} <Button variant="quiet" onClick={tryAgain}>Try again</Button></p>
      )}
      <ul ref={list} className={styles.hits}>
        {hits.map((hit) => <li key={`${hit.conversation_id} ${hit.ref}`}><Hit {...{ hit, search, now, onOpen }} hasTitle={conversationId === null} /></li>)}
      </ul>
      {hasMore && error === null && <Button variant="quiet" disabled={isLoadingMore} onClick={readOn}>Show more messages</Button>}
    </section>
  );
}

interface HitProps extends Pick<MessageResultsProps, "search" | "now" | "onOpen"> {
  hit: SearchHit;
  hasTitle: boolean;
}

function Hit({ hit, hasTitle, search, now, onOpen }: HitProps): JSX.Element {
  const { scope } = useSession();
  const { conversation_id: conversationId, turn_id: turnId, ts } = hit;
  const open = (event: MouseEvent): void => {
    // With a modifier key the browser opens the link in another tab.
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    onOpen(conversationId, turnId);
  };
  return (
    <a className={styles.hit} href={writeRoute({ scope, conversationId, turnId })} onClick={open}>
      {hasTitle && <span className={styles.title} dir="auto">{formatName(hit)}</span>}
      <span className={styles.snippet} dir="auto">
        {cutSnippet(hit.snippet, search).map(({ text, isHit }, at) => (isHit ? <mark key={at}>{text}</mark> : text))}
      </span>
      <span className={styles.line}>{WHO[hit.target]} · <time dateTime={ts}>{formatAge(Date.parse(ts), now)}</time></span>
    </a>
  );
}

function describeResults({ hits, isBusy, error, hasMore }: MessageSearch): string {
  if (error !== null) return "";
  if (isBusy) return "Searching…";
  if (hits.length === 0) return "No matching messages.";
  return `${formatCount(hits.length, "message")} found${hasMore ? ", and more" : ""}.`;
}
