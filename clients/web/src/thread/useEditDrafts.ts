/**
 * Edits of a conversation's queued messages. They are kept here because a message unmounts when it scrolls out of view,
 * and stored for this tab like drafts. If a message is delivered before its edit was saved, the edit moves to the message
 * field, with a notice.
 */
import { useCallback, useEffect, useMemo, useState } from "react";

import type { SignalView, TurnView } from "../api";
import { loadDraft, saveDraft } from "../composer/drafts";
import type { Insertion } from "../composer/insertion";
import { useSession } from "../session/context";
import { isChangeable } from "../turn/parts";
import type { Edits } from "../turn/signals/edits";
import { useAnnounce } from "../ui/announcer";
import { lookUp } from "../ui/format";

interface KeptEdits {
  edits: Edits;
  /** The last edit that was moved; null if there is none. */
  moved: Insertion | null;
}

interface Moved extends Insertion {
  readonly notice: string;
}

type Texts = Edits["texts"];

const NO_TEXTS: Texts = new Map();

export function useEditDrafts(conversationId: string, turns: readonly TurnView[]): KeptEdits {
  const announce = useAnnounce();
  const { scope } = useSession();
  const place = `${conversationId}/edits`;
  const [texts, setTexts] = useState(() => readTexts(loadDraft(sessionStorage, scope, place)));
  useEffect(() => { saveDraft(sessionStorage, scope, place, texts.size === 0 ? "" : JSON.stringify([...texts])); }, [scope, place, texts]);
  const [moved, setMoved] = useState<Moved | null>(null);
  const write = useCallback((signalId: string, text: string) => { setTexts((before) => new Map(before).set(signalId, text)); }, []);
  const close = useCallback((signalId: string) => { setTexts((before) => leaveOut(before, [signalId])); }, []);
  const ended = findEnded(texts, turns);
  if (ended.length > 0) {
    setTexts(leaveOut(texts, ended.map((signal) => signal.signal_id)));
    const unsaved = ended.filter((signal) => isUnsaved(signal, texts));
    const last = unsaved.at(-1);
    if (last !== undefined) setMoved({ text: unsaved.map((signal) => texts.get(signal.signal_id)).join("\n\n"), notice: describeMove(last) });
  }
  useEffect(() => { if (moved !== null) announce(moved.notice, "problem"); }, [moved, announce]);
  return { edits: useMemo(() => ({ texts, write, close }), [texts, write, close]), moved };
}

/** Edits as stored by `saveDraft`; none if the text has another form. */
function readTexts(kept: string): Texts {
  if (kept === "") return NO_TEXTS;
  const pairs: unknown = JSON.parse(kept);
  return new Map((Array.isArray(pairs) ? pairs : []).filter(isPair));
}

function isPair(value: unknown): value is [string, string] {
  return Array.isArray(value) && value.length === 2 && value.every((each) => typeof each === "string");
}

/** The messages that are being edited but can no longer be changed. */
function findEnded(texts: Texts, turns: readonly TurnView[]): readonly SignalView[] {
  if (texts.size === 0) return [];
  return turns.flatMap((turn) => turn.signals).filter((signal) => texts.has(signal.signal_id) && !isChangeable(signal));
}

/** Whether the edit differs from the delivered text. */
function isUnsaved(signal: SignalView, texts: Texts): boolean {
  const text = texts.get(signal.signal_id)?.trim() ?? "";
  return text !== "" && text !== signal.text.trim();
}

function leaveOut(texts: Texts, signalIds: readonly string[]): Texts {
  return new Map([...texts].filter(([signalId]) => !signalIds.includes(signalId)));
}

const ENDS: Readonly<Record<string, string>> = {
  applied: "The message was delivered before your edit was saved.",
  promoted: "The message was delivered before your edit was saved.",
  retracted: "The message was retracted before your edit was saved.",
};

function describeMove(signal: SignalView): string {
  return `${lookUp(ENDS, signal.state, "The message can no longer be edited.")} Your text is now in the message field.`;
}
