/**
 * The turns of a conversation. Only those near the viewport are in the DOM; the view follows the end unless the user
 * scrolls up.
 */
import { ArrowDown } from "lucide-react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { JSX, Ref } from "react";
import { flushSync } from "react-dom";
import { Virtuoso } from "react-virtuoso";
import type { ScrollerProps } from "react-virtuoso";

import type { TurnView } from "../api";
import { UserMessage } from "../turn/UserMessage";
import turnStyles from "../turn/turn.module.css";
import { TurnRow } from "../turn/TurnRow";
import { Button } from "../ui/Button";
import { PaperContext } from "../ui/printing";
import type { Pending } from "./pending";
import styles from "./thread.module.css";
import { useFollowing } from "./useFollowing";

interface ThreadProps {
  turns: readonly TurnView[];
  /** Messages that were accepted but are not in the stream yet. */
  pending: readonly Pending[];
  hasOlder: boolean;
  olderProblem: string;
  loadOlder: () => void;
  /** Increases with every message sent, to scroll to it. */
  sentCount: number;
  /** The turn where the list starts and that gets the focus; null for the end. Another turn mounts a new list. */
  openedTurnId: string | null;
}

type Row = { kind: "turn"; turn: TurnView } | { kind: "pending"; pending: Pending };

/** Pixels rendered above and below the viewport. */
const AROUND = { top: 600, bottom: 600 } as const;
const COMPONENTS = { Scroller, Header, Footer };

export function Thread({ turns, pending, hasOlder, olderProblem, loadOlder, sentCount, openedTurnId }: ThreadProps): JSX.Element {
  const [openedAt] = useState(() => turns.findIndex((turn) => turn.turn_id === openedTurnId));
  const { isThere, watch, follow } = useFollowing(openedAt < 0);
  const isPrinting = usePrinting();
  const takeOpened = useFirstFocus();
  const rows = useMemo(() => buildRows(turns, pending), [turns, pending]);
  const seenCount = useRef(sentCount);
  useEffect(() => {
    if (sentCount > seenCount.current) follow();
    seenCount.current = sentCount;
  }, [sentCount, follow]);
  return (
    <div className={styles.thread}>
      <Virtuoso<Row, OlderState>
        scrollerRef={watch}
        data={rows}
        context={{ hasOlder, olderProblem, loadOlder }}
        components={COMPONENTS}
        // Ordinals have no gaps, so prepending turns does not move the view.
        firstItemIndex={turns[0]?.ordinal ?? 1}
        initialTopMostItemIndex={openedAt < 0 ? { index: "LAST", align: "end" } : { index: openedAt, align: "start" }}
        computeItemKey={(_, row) => (row.kind === "turn" ? row.turn.turn_id : row.pending.key)}
        itemContent={(_, row) => <RowView row={row} isLast={row === rows.at(-1)} opened={isOf(row, openedTurnId) ? takeOpened : undefined} />}
        increaseViewportBy={AROUND}
        startReached={loadOlder}
      />
      {isPrinting && <Printed rows={rows} hasOlder={hasOlder} />}
      {!isThere && (
        <Button className={styles.toEnd} onClick={follow}>
          <ArrowDown aria-hidden /> Jump to latest
        </Button>
      )}
    </div>
  );
}

/** The printed version contains all loaded messages, not only those near the viewport. */
function Printed({ rows, hasOlder }: { rows: readonly Row[]; hasOlder: boolean }): JSX.Element {
  return (
    <PaperContext value>
      <div className={styles.printed} aria-hidden>
        {hasOlder && <p className={styles.older}>Earlier messages are not printed: scroll up to load them first.</p>}
        {rows.map((row) => <RowView key={row.kind === "turn" ? row.turn.turn_id : row.pending.key} row={row} isLast={false} opened={undefined} />)}
      </div>
    </PaperContext>
  );
}

/** Whether the page is being printed. It must be rendered before the print event returns. */
function usePrinting(): boolean {
  const [isPrinting, setPrinting] = useState(false);
  useEffect(() => {
    const begin = (): void => { flushSync(() => { setPrinting(true); }); };
    const end = (): void => { setPrinting(false); };
    window.addEventListener("beforeprint", begin);
    window.addEventListener("afterprint", end);
    return () => {
      window.removeEventListener("beforeprint", begin);
      window.removeEventListener("afterprint", end);
    };
  }, []);
  return isPrinting;
}

/** Focuses the first element that it receives; rows mount and unmount while the user scrolls. */
function useFirstFocus(): (element: HTMLElement | null) => void {
  const isDone = useRef(false);
  return useCallback((element: HTMLElement | null) => {
    if (element === null || isDone.current) return;
    isDone.current = true;
    element.focus({ preventScroll: true });
  }, []);
}

function isOf(row: Row, turnId: string | null): boolean {
  return row.kind === "turn" && row.turn.turn_id === turnId;
}

interface RowViewProps {
  row: Row;
  isLast: boolean;
  /** Ref of the turn that was opened; undefined for all others. */
  opened: ((element: HTMLElement | null) => void) | undefined;
}

function RowView({ row, isLast, opened }: RowViewProps): JSX.Element {
  if (row.kind === "turn") return <TurnRow turn={row.turn} isLast={isLast} opened={opened} />;
  return (
    <article className={turnStyles.turn} aria-label="Your message" aria-busy>
      <UserMessage text={row.pending.text} files={[]} />
      {row.pending.filenames.length > 0 && <p className={turnStyles.receipt}>{row.pending.filenames.join(", ")}</p>}
      <p className={turnStyles.working}><span className={turnStyles.pulse} aria-hidden />Sent</p>
    </article>
  );
}

interface OlderState {
  hasOlder: boolean;
  olderProblem: string;
  loadOlder: () => void;
}

function Header({ context }: { context?: OlderState | undefined }): JSX.Element {
  if (context?.hasOlder !== true) return <div className={styles.edge} />;
  if (context.olderProblem === "") return <p className={styles.older}>Loading earlier messages…</p>;
  return (
    <p className={styles.older} role="alert">
      Couldn’t load earlier messages: {context.olderProblem} <Button onClick={context.loadOlder}>Try again</Button>
    </p>
  );
}

function Footer(): JSX.Element {
  return <div className={styles.edge} />;
}

function Scroller({ ref, context: _, ...rest }: ScrollerProps & { ref?: Ref<HTMLDivElement> | undefined; context?: OlderState | undefined }): JSX.Element {
  // Not a live region: progress is announced in sentences.
  return <div {...rest} ref={ref} role="region" aria-label="Messages" id="messages" />;
}

function buildRows(turns: readonly TurnView[], pending: readonly Pending[]): readonly Row[] {
  return [
    ...turns.map((turn): Row => ({ kind: "turn", turn })),
    ...pending.map((each): Row => ({ kind: "pending", pending: each })),
  ];
}
