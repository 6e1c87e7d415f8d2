/** The list of conversations beside the open one; on narrow screens the list is a drawer over it. */
import { Library, LogOut, Menu, PanelLeftClose, Plug, SquarePen } from "lucide-react";
import { useCallback, useEffect, useRef, useState } from "react";
import type { JSX } from "react";

import { CollectionsDialog } from "../collections/CollectionsDialog";
import { ConnectionsDialog } from "../connections/ConnectionsDialog";
import { forgetDrafts } from "../composer/drafts";
import { ConversationList } from "../conversations/ConversationList";
import { useRefreshConversations } from "../conversations/useConversationList";
import { isDefaultScope } from "../routing/route";
import { useSession } from "../session/context";
import { ConversationScreen } from "../thread/ConversationScreen";
import { NewConversation } from "../thread/NewConversation";
import type { Pending } from "../thread/pending";
import { Button, IconButton } from "../ui/Button";
import styles from "./shell.module.css";
import { ThemeSwitch } from "../ui/ThemeSwitch";
import { useDrawer } from "./useDrawer";

/** Open a conversation, optionally at one of its turns; null for a new one. */
export type Select = (conversationId: string | null, turnId?: string) => void;

interface ShellProps {
  conversationId: string | null;
  /** The turn at which to open the conversation. */
  turnId: string | null;
  onSelect: Select;
}

interface Created {
  conversationId: string;
  first: Pending | null;
}

export function Shell({ conversationId, turnId, onSelect }: ShellProps): JSX.Element {
  const { refresh, refreshAll } = useRefreshConversations();
  const [begun, setBegun] = useState<Created | null>(null);
  const main = useRef<HTMLElement>(null);
  const panel = useRef<HTMLDivElement>(null);
  const { isOpen, isInert, open, close } = useDrawer(panel, main);
  const [visit, setVisit] = useState(1);
  const select = useCallback<Select>((id, turn) => {
    close();
    // Choosing the same turn again scrolls to it again.
    setVisit((before) => before + 1);
    onSelect(id, turn);
  }, [close, onSelect]);
  const place = useRef(conversationId);
  useEffect(() => { place.current = conversationId; }, [conversationId]);
  useEffect(() => {
    // Already on the page for a new conversation: focus the message field.
    if (place.current === null) focusField(main.current);
  }, [visit]);
  const begin = useCallback((id: string, first: Pending | null) => {
    setBegun({ conversationId: id, first });
    // Do not navigate if the user has opened something else while the message was sent.
    if (place.current === null) onSelect(id);
    refreshAll();
  }, [onSelect, refreshAll]);
  return (
    <div className={styles.shell}>
      <SkipLink to={main} />
      <div ref={panel} className={isOpen ? styles.openDrawer : styles.drawer} inert={isInert}>
        <Top onNew={() => { select(null); }} onClose={close} />
        <ConversationList selected={conversationId} onSelect={select} onChanged={refreshAll} />
        <Bottom />
      </div>
      {isOpen && <button type="button" className={styles.scrim} aria-label="Hide the conversation list" onClick={close} />}
      <main ref={main} tabIndex={-1} className={styles.main} inert={isOpen}>
        <div className={styles.toggle}>
          <IconButton label="Show conversations" icon={<Menu aria-hidden />} aria-expanded={isOpen} onClick={open} />
        </div>
        {conversationId === null ? (
          <NewConversation onCreated={begin} />
        ) : (
          <ConversationScreen
            key={conversationId}
            conversationId={conversationId}
            turnId={turnId}
            visit={visit}
            first={begun?.conversationId === conversationId ? begun.first : null}
            onFork={select}
            onNew={() => { select(null); }}
            onChanged={refresh}
          />
        )}
      </main>
    </div>
  );
}

function SkipLink({ to }: { to: { current: HTMLElement | null } }): JSX.Element {
  const skip = (): void => { focusField(to.current); };
  return <button type="button" className={styles.skip} onClick={skip}>Skip to the message field</button>;
}

function focusField(main: HTMLElement | null): void {
  const field = main?.querySelector<HTMLElement>("textarea");
  (field ?? main)?.focus();
}

function Top({ onNew, onClose }: { onNew: () => void; onClose: () => void }): JSX.Element {
  return (
    <header className={styles.top}>
      <span className={styles.brand}>Everturn</span>
      <Button aria-label="New conversation" title="New conversation" onClick={onNew}><SquarePen aria-hidden /> New</Button>
      <span className={styles.closer}><IconButton label="Hide conversations" icon={<PanelLeftClose aria-hidden />} onClick={onClose} /></span>
    </header>
  );
}

function Bottom(): JSX.Element {
  const { isSignedIn, scope, signOut } = useSession();
  const [shown, setShown] = useState<"documents" | "accounts" | null>(null);
  const documents = useRef<HTMLButtonElement>(null);
  const accounts = useRef<HTMLButtonElement>(null);
  const findDocuments = useCallback(() => documents.current, []);
  const findAccounts = useCallback(() => accounts.current, []);
  const close = (): void => { setShown(null); };
  const leave = (): void => {
    forgetDrafts(sessionStorage, scope);
    signOut();
  };
  return (
    <footer className={styles.bottom}>
      <span className={styles.scope}>{!isDefaultScope(scope) && `${scope.tenant} / ${scope.project}`}</span>
      <IconButton ref={documents} label="Documents" icon={<Library aria-hidden />} onClick={() => { setShown("documents"); }} />
      <IconButton ref={accounts} label="Connected accounts" icon={<Plug aria-hidden />} onClick={() => { setShown("accounts"); }} />
      {shown === "documents" && <CollectionsDialog onClose={close} returnTo={findDocuments} />}
      {shown === "accounts" && <ConnectionsDialog onClose={close} returnTo={findAccounts} />}
      <ThemeSwitch />
      {isSignedIn && <IconButton label="Sign out" icon={<LogOut aria-hidden />} onClick={leave} />}
    </footer>
  );
}
