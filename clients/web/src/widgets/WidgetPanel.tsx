/**
 * A widget of the conversation's agent: a page by others, in a frame without an origin, a network, windows or our
 * credential. It learns what `bridge.ts` sends, and acts through it. Loaded on first use.
 */
import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import type { JSX } from "react";

import { ProblemError } from "../api";
import type { TurnView, Widget } from "../api";
import artifactStyles from "../artifacts/artifacts.module.css";
import { Panel } from "../artifacts/Panel";
import { useBackend } from "../session/context";
import { useTurnActions } from "../turn/actions";
import { Button } from "../ui/Button";
import { describeError, formatCount } from "../ui/format";
import { escapeDirectionControls } from "../ui/invisibleCharacters";
import { WidgetBridge } from "./bridge";
import type { WidgetProblem } from "./bridge";
import styles from "./widgets.module.css";

/** A message can be sent only so long after it was shown: a click that was meant for something else must not send it. */
const READ_MS = 800;
/** How often a widget can take the focus from a text field before it is stopped. */
const MAX_THEFTS = 3;

interface WidgetPanelProps {
  agentId: string;
  widget: Widget;
  conversationId: string;
  turns: readonly TurnView[];
  onClose: () => void;
}

export default function WidgetPanel({ agentId, widget, conversationId, turns, onClose }: WidgetPanelProps): JSX.Element {
  const backend = useBackend();
  const [start, setStart] = useState(0);
  const [stopped, setStopped] = useState("");
  const { data, error } = useQuery({
    queryKey: ["widget", agentId, widget.name, start],
    queryFn: ({ signal }) => backend.loadWidget(agentId, widget.name, signal),
    // The address expires, so it is never kept; and another one would load the page again.
    gcTime: 0,
    staleTime: Infinity,
    refetchOnWindowFocus: false,
  });
  const restart = (): void => {
    setStopped("");
    setStart(start + 1);
  };
  return (
    <Panel title={escapeDirectionControls(widget.title)} details="Widget" onClose={onClose}>
      {stopped !== "" && (
        <div role="alert" className={styles.problem}>
          <p>The widget was stopped. {stopped}</p>
          <Button onClick={restart}>Restart the widget</Button>
        </div>
      )}
      {error !== null && <p className={artifactStyles.problem} role="alert">Couldn’t load the widget: {describeError(error)}</p>}
      {data === undefined && error === null && <p className={artifactStyles.notice} aria-busy>Loading the widget…</p>}
      {data !== undefined && stopped === "" && (
        <Frame key={data.url} url={data.url} {...{ agentId, conversationId, turns }} title={widget.title} onStop={setStopped} />
      )}
    </Panel>
  );
}

interface FrameProps extends Pick<WidgetPanelProps, "agentId" | "conversationId" | "turns"> {
  url: string;
  title: string;
  onStop: (reason: string) => void;
}

function Frame({ url, title, agentId, conversationId, turns, onStop }: FrameProps): JSX.Element {
  const backend = useBackend();
  const actions = useTurnActions();
  const place = useRef<HTMLDivElement>(null);
  const frame = useRef<HTMLIFrameElement>(null);
  const latest = useRef(turns);
  const [proposal, setProposal] = useState<string | null>(null);
  const [dropped, setDropped] = useState(0);
  const [bridge, setBridge] = useState<WidgetBridge | null>(null);
  useEffect(() => {
    const end = new AbortController();
    const made = new WidgetBridge({
      conversationId,
      // A sandboxed frame has no origin that could be named.
      post: (text) => { frame.current?.contentWindow?.postMessage(text, "*"); },
      call: (operation, args) => backend.callOperation(agentId, operation, args, end.signal),
      describe: describeProblem,
      propose: setProposal,
      onDropped: setDropped,
      onStop,
    });
    const receive = (event: MessageEvent<unknown>): void => {
      if (event.source === frame.current?.contentWindow && event.origin === "null") made.receive(event);
    };
    window.addEventListener("message", receive);
    made.update(latest.current);
    setBridge(made);
    return () => {
      window.removeEventListener("message", receive);
      made.close();
      end.abort();
    };
  }, [backend, agentId, conversationId, onStop]);
  useEffect(() => {
    latest.current = turns;
    bridge?.update(turns);
  }, [bridge, turns]);
  useKeptFocus(place, frame, onStop);
  const answer = (isSent: boolean): void => {
    if (isSent && proposal !== null) actions.send(proposal);
    bridge?.answerProposal(isSent);
    setProposal(null);
  };
  return (
    <div ref={place} className={styles.widget}>
      {dropped > 0 && <p role="status" className={styles.problem}>The widget sends too many messages; {formatCount(dropped, "message")} dropped.</p>}
      {proposal !== null && <Proposal key={proposal} text={proposal} onAnswer={answer} />}
      {bridge !== null && <iframe ref={frame} title={escapeDirectionControls(title)} sandbox="allow-scripts" allow="" referrerPolicy="no-referrer" src={url} />}
    </div>
  );
}

/** A message that the widget wants to send: it is the person who sends it, after having seen it. */
function Proposal({ text, onAnswer }: { text: string; onAnswer: (isSent: boolean) => void }): JSX.Element {
  const [isRead, setRead] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => { setRead(true); }, READ_MS);
    return () => { clearTimeout(timer); };
  }, []);
  const shown = useMemo(() => escapeDirectionControls(text), [text]);
  return (
    <section className={styles.proposal} aria-label="Message from the widget">
      <p>The widget asks you to send this message:</p>
      <blockquote dir="auto">{shown}</blockquote>
      <div className={styles.choices}>
        <Button variant="primary" disabled={!isRead} onClick={() => { onAnswer(true); }}>Send this message</Button>
        <Button onClick={() => { onAnswer(false); }}>Don’t send it</Button>
      </div>
    </section>
  );
}

/**
 * A page in a frame can take the focus, and with it what the person types; browsers can't forbid it. While a text field has
 * the focus, the frame gets it only under the pointer or by the Tab key. Otherwise the field gets it back, and a page that
 * goes on is stopped.
 */
function useKeptFocus(
  place: { readonly current: HTMLElement | null },
  frame: { readonly current: HTMLIFrameElement | null },
  onStop: (reason: string) => void,
): void {
  useEffect(() => {
    const { current } = place;
    if (current === null) return;
    const end = new AbortController();
    const options = { signal: end.signal };
    let field: HTMLElement | null = null;
    let isAllowed = false;
    let thefts = 0;
    const giveBack = (): void => {
      if (field === null || isAllowed || frame.current === null || document.activeElement !== frame.current) return;
      window.focus();
      field.focus({ preventScroll: true });
      thefts += 1;
      if (thefts >= MAX_THEFTS) onStop("It took the focus while you were typing.");
    };
    document.addEventListener("focusin", ({ target }) => {
      if (target === frame.current) return;
      field = target instanceof HTMLElement && target.matches("textarea, input") ? target : null;
    }, options);
    document.addEventListener("keydown", ({ key }) => { isAllowed = key === "Tab"; }, { ...options, capture: true });
    current.addEventListener("pointerenter", () => { isAllowed = true; }, options);
    current.addEventListener("pointerleave", () => { isAllowed = false; }, options);
    // The element that has the focus is known only after the event.
    window.addEventListener("blur", () => { setTimeout(giveBack); }, options);
    return () => { end.abort(); };
  }, [place, frame, onStop]);
}

function describeProblem(error: unknown): WidgetProblem {
  if (error instanceof ProblemError) {
    const { type, title, status, detail } = error;
    return { type, title, status, detail };
  }
  return { type: "about:blank", title: "The operation could not be called", status: 0, detail: describeError(error) };
}
