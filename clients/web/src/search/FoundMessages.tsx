/** What was said that has the words of the search: a part of each text, where it was said, and when. */
import { useEffect, useId, useRef } from "react";
import type { JSX, MouseEvent } from "react";

import type { SearchHit } from "../api";
import { nameOf } from "../conversations/pages";
import { useSession } from "../session/context";
import { writeRoute } from "../shell/route";
import { Button } from "../ui/Button";
import { sayAgo, sayCount, sayError } from "../ui/wording";
import { cutSnippet } from "./marks";
import styles from "./search.module.css";
import { useMessageSearch } from "./useMessageSearch";
import type { FoundTexts } from "./useMessageSearch";

export type OpenTurn = (conversationId: string, turnId: string) => void;

interface FoundMessagesProps {
  search: string;
  /** The only conversation that is searched; null for all. */
  conversationId: string | null;
  now: number;
  onOpen: OpenTurn;
}

const WHO: Readonly<Record<SearchHit["target"], string>> = { user: "You", assistant: "Answer", attachment: "File", summary: "Summary", notes: "Note" };

export function FoundMessages({ search, conversationId, now, onOpen }: FoundMessagesProps): JSX.Element {
  const found = useMessageSearch(search, conversationId);
  const { hits, isBusy, isLoadingMore, error, hasMore, loadMore, tryAgain } = found;
  const heading = useId();
  const list = useRef<HTMLUListElement>(null);
  const readsOnAt = useRef<number | null>(null);
  const readOn = async (): Promise<void> => {
    readsOnAt.current = hits.length;
    await loadMore();
  };
  // The answer may come some frames before it is drawn, so the focus waits for what is drawn. The button may be gone by
  // then: who reads on does so with the first that is new, unless they write elsewhere meanwhile.
  useEffect(() => {
    const at = readsOnAt.current;
    if (at === null || hits.length <= at) return;
    readsOnAt.current = null;
    if (document.activeElement instanceof HTMLInputElement || document.activeElement instanceof HTMLTextAreaElement) return;
    list.current?.children[at]?.querySelector("a")?.focus();
  }, [hits]);
  const said = sayFound(found);
  return (
    <section className={styles.found} aria-labelledby={heading} aria-busy={isBusy}>
      <h2 id={heading} className={styles.heading}>{conversationId === null ? "In messages" : "In this chat"}</h2>
      <p role="status" className={hits.length > 0 && !isBusy ? "visually-hidden" : styles.said}>{said}</p>
      {error === null ? null : (
        <p role="alert" className={styles.problem}>{sayError(error)} <Button look="quiet" onClick={tryAgain}>Try again</Button></p>
      )}
      <ul ref={list} className={styles.hits}>
        {hits.map((hit) => <li key={`${hit.conversation_id} ${hit.ref}`}><Hit {...{ hit, search, now, onOpen }} hasTitle={conversationId === null} /></li>)}
      </ul>
      {hasMore && error === null && <Button look="quiet" disabled={isLoadingMore} onClick={readOn}>More messages</Button>}
    </section>
  );
}

interface HitProps extends Pick<FoundMessagesProps, "search" | "now" | "onOpen"> {
  hit: SearchHit;
  hasTitle: boolean;
}

function Hit({ hit, hasTitle, search, now, onOpen }: HitProps): JSX.Element {
  const { scope } = useSession();
  const { conversation_id: conversationId, turn_id: turnId, ts } = hit;
  const open = (event: MouseEvent): void => {
    // The link itself opens another tab.
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    onOpen(conversationId, turnId);
  };
  return (
    <a className={styles.hit} href={writeRoute({ scope, conversationId, turnId })} onClick={open}>
      {hasTitle && <span className={styles.title} dir="auto">{nameOf(hit)}</span>}
      <span className={styles.snippet} dir="auto">
        {cutSnippet(hit.snippet, search).map(({ text, isHit }, at) => (isHit ? <mark key={at}>{text}</mark> : text))}
      </span>
      <span className={styles.line}>{WHO[hit.target]} · <time dateTime={ts}>{sayAgo(Date.parse(ts), now)}</time></span>
    </a>
  );
}

function sayFound({ hits, isBusy, error, hasMore }: FoundTexts): string {
  if (error !== null) return "";
  if (isBusy) return "Searching…";
  if (hits.length === 0) return "No matching messages.";
  return `${sayCount(hits.length, "message")} found${hasMore ? ", and more" : ""}.`;
}
