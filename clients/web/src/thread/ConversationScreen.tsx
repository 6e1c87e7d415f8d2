/** One conversation: its turns, the state of the connection, and the message field. */
import { useCallback, useEffect, useMemo, useState } from "react";
import type { ComponentProps, JSX } from "react";

import { findAgent } from "../agents/agents";
import { useAgents } from "../agents/useAgents";
import { isOpen } from "../api";
import type { Accepted, FileView, StateView, TurnView } from "../api";
import { Composer } from "../composer/Composer";
import type { Draft } from "../composer/useSending";
import { makeOpening, openingOf } from "../conversations/openings";
import { EarlierFilesContext } from "../markdown/references";
import { ToolProgressContext, TurnActionsContext } from "../turn/actions";
import { QueuePlaceContext } from "../turn/queue";
import { EditsContext } from "../turn/signals/edits";
import { Button } from "../ui/Button";
import { formatName } from "../ui/format";
import { escapeDirectionControls } from "../ui/invisibleCharacters";
import { ConversationHeader } from "./ConversationHeader";
import { stillPending } from "./pending";
import type { Pending } from "./pending";
import { SidePanel } from "./SidePanel";
import { wasNotFound } from "./status";
import { StatusLine } from "./StatusLine";
import { Thread } from "./Thread";
import styles from "./thread.module.css";
import { useAnnouncedTurn } from "./useAnnouncedTurn";
import { useConversation } from "./useConversation";
import { useConversationActions } from "./useConversationActions";
import { useEditDrafts } from "./useEditDrafts";
import { useOpenedTurn } from "./useOpenedTurn";
import { useStopping } from "./useStopping";

const NO_TURNS: readonly TurnView[] = [];

interface ConversationScreenProps {
  conversationId: string;
  /** The turn to open it at, null for its end; `visit` increases with every choice, even of the same turn. */
  turnId: string | null;
  visit: number;
  /** The first message of the conversation, until the stream contains it. */
  first: Pending | null;
  onFork: (conversationId: string) => void;
  /** Open the page for a new conversation. */
  onNew: () => void;
  onChanged: () => void;
}

export function ConversationScreen({ conversationId, turnId, visit, first, onFork, onNew, onChanged }: ConversationScreenProps): JSX.Element {
  const { live, olderProblem, loadOlder, loadBackTo, refreshTurn } = useConversation(conversationId);
  const opened = useOpenedTurn({ turnId, visit, state: live.state, loadBackTo });
  const turns = live.state?.turns ?? NO_TURNS;
  const [accepted, setAccepted] = useState<readonly Pending[]>(first === null ? [] : [first]);
  const [sentCount, setSentCount] = useState(0);
  const last = turns.at(-1);
  const openTurn = last !== undefined && isOpen(last) ? last : undefined;
  const pending = useMemo(() => stillPending(accepted, turns), [accepted, turns]);
  const conversation = live.state?.conversation;
  const agents = useAgents();
  const agent = conversation && findAgent(agents, conversation.bundle_id);
  const onAccepted = useCallback((answer: Accepted, draft: Draft) => {
    setSentCount((before) => before + 1);
    // A message to the running turn is shown there, with its receipt.
    if (answer.signal_id !== undefined || answer.turn_id === undefined) return;
    setAccepted((before) => [...before, buildPending(answer.turn_id ?? "", draft)]);
  }, []);
  const opening = findOpening(live.state, pending);
  const name = formatName({ title: conversation?.title ?? "" }, opening);
  const actions = useConversationActions({ conversationId, name, onFork, onAccepted, refreshTurn });
  const stopping = useStopping(conversationId, openTurn?.turn_id ?? pending[0]?.turnId);
  const { edits, moved } = useEditDrafts(conversationId, turns);
  useAnnouncedTurn(last);
  const state = conversation?.state;
  const title = conversation?.title ?? "";
  const isAbsent = wasNotFound(live);
  const isLive = live.connection === "live";
  useEffect(() => { onChanged(); }, [state, title, onChanged]);
  // After a reconnect other data may be stale, and the server is known to respond.
  useEffect(() => { if (isLive) onChanged(); }, [isLive, onChanged]);
  const earlierFiles = useEarlierFiles(turns);
  useDocumentTitle(title, opening);
  return (
    <TurnActionsContext value={actions}>
      <ToolProgressContext value={live.toolProgress}>
        <EarlierFilesContext value={earlierFiles}>
          <QueuePlaceContext value={live.place ?? null}>
            <EditsContext value={edits}>
              <SidePanel turns={turns} conversationId={conversationId}>
                <div className={styles.screen}>
                  <ConversationHeader name={name} conversation={conversation} turns={turns} isAbsent={isAbsent} />
                  {isAbsent && <Missing onNew={onNew} />}
                  {live.state === null ? !isAbsent && <div className={styles.thread} aria-busy /> : (
                    <Thread key={opened.key} {...{ turns, pending, olderProblem, loadOlder, sentCount }} openedTurnId={opened.turnId} hasOlder={live.state.next_cursor !== undefined} />
                  )}
                  {!isAbsent && <StatusLine live={live} isSought={opened.isSought} problems={[stopping.problem, opened.problem]} />}
                  <Writing
                    isThere={!isAbsent}
                    conversationId={conversationId}
                    agentTitle={agent?.title}
                    isBusy={openTurn !== undefined || pending.length > 0}
                    isStopping={stopping.isStopping}
                    inserted={moved}
                    onAccepted={onAccepted}
                    onStop={stopping.stop}
                    onNew={onNew}
                  />
                </div>
              </SidePanel>
            </EditsContext>
          </QueuePlaceContext>
        </EarlierFilesContext>
      </ToolProgressContext>
    </TurnActionsContext>
  );
}

/** Shown instead of a conversation that was never there. */
function Missing({ onNew }: { onNew: () => void }): JSX.Element {
  return (
    <div className={styles.missing} role="alert">
      <p>This conversation was deleted, or you don’t have access to it.</p>
      <Button variant="primary" onClick={onNew}>Start a new conversation</Button>
    </div>
  );
}

/** A conversation that does not exist has no message field. */
function Writing({ isThere, ...rest }: ComponentProps<typeof Composer> & { isThere: boolean }): JSX.Element | null {
  return isThere ? <Composer {...rest} /> : null;
}

/** The first words of the conversation, even before the stream contains them. */
function findOpening(state: StateView | null, pending: readonly Pending[]): string {
  const first = pending[0];
  if (state !== null && state.turns.length > 0) return openingOf(state);
  return first === undefined ? "" : makeOpening(first.text, first.filenames);
}

/** All known files of the conversation; the same array while they are unchanged. */
function useEarlierFiles(turns: readonly TurnView[]): readonly FileView[] {
  const files = turns.flatMap((turn) => [...turn.attachments, ...turn.files]);
  const ids = files.map((file) => file.artifact_id).join(" ");
  const [kept, setKept] = useState({ ids, files });
  if (kept.ids === ids) return kept.files;
  setKept({ ids, files });
  return files;
}

function useDocumentTitle(title: string, opening: string): void {
  const name = title === "" ? opening : title;
  useEffect(() => { document.title = name === "" ? "Everturn" : `${name} · Everturn`; }, [name]);
  useEffect(() => () => { document.title = "Everturn"; }, []);
}

export function buildPending(turnId: string, draft: Draft): Pending {
  return { key: `pending.${turnId}`, turnId, text: draft.text, filenames: draft.files.map((file) => escapeDirectionControls(file.name)) };
}
