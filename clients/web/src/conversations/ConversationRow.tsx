/** One conversation in the list: its title, its state, and a menu of actions. */
import { memo, useCallback, useEffect, useRef, useState } from "react";
import type { JSX, MouseEvent } from "react";

import type { ConversationView } from "../api";
import { useSession } from "../session/context";
import { writeRoute } from "../routing/route";
import { formatAge } from "../ui/format";
import { DeleteDialog } from "./DeleteDialog";
import styles from "./conversations.module.css";
import { isStaleFailure, markFailureSeen, describeState } from "./pages";
import { RenameDialog } from "./RenameDialog";
import { RowMenu } from "./RowMenu";
import { useName } from "./useName";

interface ConversationRowProps {
  conversation: ConversationView;
  isSelected: boolean;
  now: number;
  onSelect: (conversationId: string | null) => void;
  onChanged: () => void;
}

export const ConversationRow = memo(function ConversationRow(props: ConversationRowProps): JSX.Element {
  const { conversation, isSelected, now, onSelect, onChanged } = props;
  const { scope } = useSession();
  const [dialog, setDialog] = useState<"rename" | "delete" | null>(null);
  const id = conversation.conversation_id;
  const name = useName(conversation);
  const row = useRef<HTMLDivElement>(null);
  const isErased = useRef(false);
  const returnTo = useCallback(() => {
    // The row of an erased conversation is about to disappear.
    const place = isErased.current ? row.current?.closest("nav")?.querySelector("input") : row.current?.querySelector("button");
    return place ?? null;
  }, []);
  const close = (): void => { setDialog(null); };
  const leave = (): void => {
    isErased.current = true;
    onChanged();
    if (isSelected) onSelect(null);
  };
  const select = (event: MouseEvent): void => {
    // With a modifier key the browser opens the link in another tab.
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    onSelect(id);
  };
  return (
    <div ref={row} className={isSelected ? styles.selected : styles.row}>
      <a className={styles.link} href={writeRoute({ scope, conversationId: id, turnId: null })} aria-current={isSelected ? "page" : undefined} onClick={select}>
        <span className={styles.title} dir="auto">{name}</span>
        <State conversation={conversation} isSelected={isSelected} now={now} />
      </a>
      <RowMenu conversation={conversation} onAsk={setDialog} onChanged={onChanged} onFork={onSelect} />
      {dialog === "rename" && <RenameDialog conversation={conversation} onClose={close} onChanged={onChanged} returnTo={returnTo} />}
      {dialog === "delete" && <DeleteDialog conversation={conversation} onClose={close} onDeleted={leave} returnTo={returnTo} />}
    </div>
  );
});

interface StateProps {
  conversation: ConversationView;
  isSelected: boolean;
  now: number;
}

function State({ conversation, isSelected, now }: StateProps): JSX.Element {
  const { conversation_id: id, state, last_activity_at: at } = conversation;
  useEffect(() => { if (isSelected && state === "error") markFailureSeen(id, at); }, [isSelected, id, state, at]);
  const said = state === "error" && isStaleFailure(id, at, now) ? "" : describeState(state);
  if (said !== "") return <span className={`${styles.line ?? ""} ${styles[state] ?? ""}`}>{said}</span>;
  return <time className={styles.line} dateTime={at}>{formatAge(Date.parse(at), now)}</time>;
}
