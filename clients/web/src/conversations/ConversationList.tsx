/** The list of conversations with its search. Only the visible rows are in the DOM. */
import { Search } from "lucide-react";
import { useState } from "react";
import type { JSX } from "react";
import { Virtuoso } from "react-virtuoso";

import { MessageResults } from "../search/MessageResults";
import type { OpenTurn } from "../search/MessageResults";
import { Button } from "../ui/Button";
import { useDelayed } from "../ui/useDelayed";
import { useNow } from "../ui/useNow";
import { describeError } from "../ui/format";
import { ConversationRow } from "./ConversationRow";
import styles from "./conversations.module.css";
import { useConversationList } from "./useConversationList";

interface ConversationListProps {
  selected: string | null;
  onSelect: (conversationId: string | null, turnId?: string) => void;
  onChanged: () => void;
}

const TYPING_MS = 250;
const MAX_SEARCH_CHARS = 200;
const COMPONENTS = { Footer: ListEnd };

export function ConversationList({ selected, onSelect, onChanged }: ConversationListProps): JSX.Element {
  const [typed, setTyped] = useState("");
  const [isArchived, setArchived] = useState(false);
  /** Whether only the open conversation is searched. */
  const [wantsOpen, setWantsOpen] = useState(false);
  const search = useDelayed(typed.trim(), TYPING_MS);
  const now = useNow();
  const isSearching = typed.trim() !== "";
  const searchedId = isSearching && wantsOpen ? selected : null;
  const type = (text: string): void => {
    setTyped(text);
    // The scope belongs to one search.
    if (text.trim() === "") setWantsOpen(false);
  };
  return (
    <nav className={styles.list} aria-label="Conversations">
      <label className={styles.search}>
        <Search aria-hidden />
        <span className="visually-hidden">Search conversations</span>
        <input type="search" dir="auto" placeholder="Search" value={typed} maxLength={MAX_SEARCH_CHARS} onChange={(event) => { type(event.target.value); }} />
      </label>
      {isSearching && selected !== null && (
        <div className={styles.filters} role="group" aria-label="Where to search">
          <Button variant="quiet" aria-pressed={!wantsOpen} onClick={() => { setWantsOpen(false); }}>All conversations</Button>
          <Button variant="quiet" aria-pressed={wantsOpen} onClick={() => { setWantsOpen(true); }}>This conversation</Button>
        </div>
      )}
      {searchedId === null
        ? <Conversations {...{ search, selected, now, isArchived, onArchived: setArchived, onSelect, onChanged }} />
        : search !== "" && (
          <div className={styles.inOpen}>
            <MessageResults key={searchedId} search={search} conversationId={searchedId} now={now} onOpen={onSelect} />
          </div>
        )}
    </nav>
  );
}

interface ConversationsProps extends ConversationListProps {
  search: string;
  now: number;
  isArchived: boolean;
  onArchived: (isArchived: boolean) => void;
}

/** All conversations, or those whose titles match the search, with matching messages below them. */
function Conversations({ search, selected, now, isArchived, onArchived, onSelect, onChanged }: ConversationsProps): JSX.Element {
  const { conversations, isLoading, error, hasMore, loadMore } = useConversationList(search, isArchived);
  return (
    <>
      <div className={styles.filters} role="group" aria-label="Filter conversations">
        <Button variant="quiet" aria-pressed={!isArchived} onClick={() => { onArchived(false); }}>Active</Button>
        <Button variant="quiet" aria-pressed={isArchived} onClick={() => { onArchived(true); }}>Archived</Button>
      </div>
      {error !== null && <p role="alert" className={styles.problem}>{describeError(error)}</p>}
      {!isLoading && error === null && conversations.length === 0 && <p className={styles.empty}>{describeEmptyList(search, isArchived)}</p>}
      <Virtuoso
        className={styles.rows}
        data={conversations}
        tabIndex={-1}
        computeItemKey={(_, conversation) => conversation.conversation_id}
        // Matching titles are paged by a button, because messages follow below them.
        endReached={search === "" ? loadMore : doNothing}
        context={{ search, now, hasMore, loadMore, onOpen: onSelect }}
        components={COMPONENTS}
        increaseViewportBy={200}
        itemContent={(_, conversation) => (
          <ConversationRow
            conversation={conversation}
            isSelected={conversation.conversation_id === selected}
            now={now}
            onSelect={onSelect}
            onChanged={onChanged}
          />
        )}
      />
      {hasMore && search === "" && <p className="visually-hidden">Scroll down for more.</p>}
    </>
  );
}

interface ListContext {
  search: string;
  now: number;
  hasMore: boolean;
  loadMore: () => void;
  onOpen: OpenTurn;
}

/** Below the matching titles: a button for more of them, and the messages. */
function ListEnd({ context }: { context?: ListContext | undefined }): JSX.Element | null {
  if (context === undefined || context.search === "") return null;
  const { search, now, hasMore, loadMore, onOpen } = context;
  return (
    <>
      {hasMore && <Button variant="quiet" className={styles.more} onClick={loadMore}>Show more conversations</Button>}
      <MessageResults search={search} conversationId={null} now={now} onOpen={onOpen} />
    </>
  );
}

function doNothing(): void {
  // A button loads more.
}

function describeEmptyList(search: string, isArchived: boolean): string {
  if (search !== "") return "No matching titles.";
  return isArchived ? "No archived conversations." : "No conversations yet.";
}
