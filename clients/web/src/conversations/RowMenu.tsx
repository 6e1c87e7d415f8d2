/** The actions on a conversation. */
import { Menu, MenuButton, MenuItem, MenuProvider } from "@ariakit/react";
import { Archive, ArchiveRestore, Download, Ellipsis, GitFork, Pencil, Trash2 } from "lucide-react";
import type { JSX } from "react";

import type { ConversationView } from "../api";
import { useBackend } from "../session/context";
import { useAnnounce } from "../ui/announcer";
import { downloadBlob } from "../ui/download";
import { describeError } from "../ui/format";
import styles from "./conversations.module.css";
import { nameFork } from "./pages";
import { useName } from "./useName";

interface RowMenuProps {
  conversation: ConversationView;
  onAsk: (what: "rename" | "delete") => void;
  onChanged: () => void;
  onFork: (conversationId: string) => void;
}

export function RowMenu({ conversation, onAsk, onChanged, onFork }: RowMenuProps): JSX.Element {
  const name = useName(conversation);
  const act = useRowActions(conversation, name, onChanged, onFork);
  const label = `Actions for ${name}`;
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
          label={conversation.archived ? "Unarchive" : "Archive"}
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

function useRowActions(conversation: ConversationView, name: string, onChanged: () => void, onFork: (conversationId: string) => void): RowActions {
  const backend = useBackend();
  const announce = useAnnounce();
  const id = conversation.conversation_id;
  const act = (work: () => Promise<void>) => (): void => {
    work().catch((error: unknown) => { announce(describeError(error), "problem"); });
  };
  const archive = async (archived: boolean, undo: boolean): Promise<void> => {
    await backend.patchConversation(id, { archived });
    onChanged();
    const undoAction = { label: "Undo", run: act(() => archive(!archived, false)) };
    announce(archived ? "Archived." : "Unarchived.", "done", undo ? undoAction : undefined);
  };
  return {
    fork: act(async () => {
      const forked = await backend.forkConversation(id, { title: nameFork(name) });
      onChanged();
      onFork(forked.conversation_id);
      announce("Forked to a new conversation.", "done");
    }),
    exportAll: act(async () => {
      downloadBlob(await backend.exportConversation(id), `${id}.jsonl`);
      announce("Export downloaded.", "done");
    }),
    archive: act(() => archive(!conversation.archived, true)),
  };
}
