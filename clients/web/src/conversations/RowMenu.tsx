/** What can be done with a conversation. */
import { Menu, MenuButton, MenuItem, MenuProvider } from "@ariakit/react";
import { Archive, ArchiveRestore, Download, Ellipsis, GitFork, Pencil, Trash2 } from "lucide-react";
import type { JSX } from "react";

import type { ConversationView } from "../api";
import { useBackend } from "../session/context";
import { useAnnounce } from "../ui/announcer";
import { saveBlob } from "../ui/saving";
import { sayError } from "../ui/wording";
import styles from "./conversations.module.css";
import { useName } from "./useName";

interface RowMenuProps {
  conversation: ConversationView;
  onAsk: (what: "rename" | "delete") => void;
  onChanged: () => void;
  onFork: (conversationId: string) => void;
}

export function RowMenu({ conversation, onAsk, onChanged, onFork }: RowMenuProps): JSX.Element {
  const act = useRowActions(conversation, onChanged, onFork);
  const label = `Actions for ${useName(conversation)}`;
  return (
    <MenuProvider>
      <MenuButton className={styles.menuButton} aria-label={label} title="Actions">
        <Ellipsis aria-hidden />
      </MenuButton>
      <Menu className={styles.menu} gutter={4} portal unmountOnHide aria-label={label}>
        <Item icon={<Pencil aria-hidden />} label="Rename" onClick={() => { onAsk("rename"); }} />
        <Item icon={<GitFork aria-hidden />} label="Fork" onClick={act.fork} />
        <Item icon={<Download aria-hidden />} label="Export" onClick={act.exportAll} />
        <Item
          icon={conversation.archived ? <ArchiveRestore aria-hidden /> : <Archive aria-hidden />}
          label={conversation.archived ? "Take out of the archive" : "Archive"}
          onClick={act.archive}
        />
        <Item icon={<Trash2 aria-hidden />} label="Delete" onClick={() => { onAsk("delete"); }} />
      </Menu>
    </MenuProvider>
  );
}

function Item({ icon, label, onClick }: { icon: JSX.Element; label: string; onClick: () => void }): JSX.Element {
  return <MenuItem className={styles.menuItem} onClick={onClick}>{icon} {label}</MenuItem>;
}

interface RowActions {
  fork: () => void;
  exportAll: () => void;
  archive: () => void;
}

function useRowActions(conversation: ConversationView, onChanged: () => void, onFork: (conversationId: string) => void): RowActions {
  const backend = useBackend();
  const announce = useAnnounce();
  const id = conversation.conversation_id;
  /** What was done is said, and so is why it could not be done. */
  const act = (work: () => Promise<string>) => (): void => {
    work().then(announce, (error: unknown) => { announce(sayError(error), "problem"); });
  };
  return {
    fork: act(async () => {
      const forked = await backend.forkConversation(id);
      onChanged();
      onFork(forked.conversation_id);
      return "This is the fork.";
    }),
    exportAll: act(async () => {
      saveBlob(await backend.exportConversation(id), `${id}.jsonl`);
      return "The export is downloaded.";
    }),
    archive: act(async () => {
      await backend.patchConversation(id, { archived: !conversation.archived });
      onChanged();
      return conversation.archived ? "The conversation is current again." : "The conversation is archived.";
    }),
  };
}
