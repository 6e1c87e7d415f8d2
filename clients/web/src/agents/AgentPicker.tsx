/** Chooses the agent of a new conversation: radio buttons, with a search when there are many. */
import { useEffect, useId, useRef, useState } from "react";
import type { JSX, KeyboardEvent, MouseEvent } from "react";

import type { Agent } from "../api";
import { formatCount } from "../ui/format";
import { escapeDirectionControls } from "../ui/invisibleCharacters";
import { describeAgent, searchAgents } from "./agents";
import { AgentMark } from "./AgentMark";
import styles from "./agents.module.css";

/** More agents than this have a search. */
const MAX_WITHOUT_SEARCH = 8;

interface AgentPickerProps {
  agents: readonly Agent[];
  chosen: Agent | undefined;
  onChoose: (agent: Agent) => void;
  /** The user clicked an agent and can go on with the message. */
  onDone: () => void;
}

export function AgentPicker({ agents, chosen, onChoose, onDone }: AgentPickerProps): JSX.Element {
  const [query, setQuery] = useState("");
  const list = useRef<HTMLDivElement>(null);
  const hasSearch = agents.length > MAX_WITHOUT_SEARCH;
  const found = hasSearch ? searchAgents(agents, query) : agents;
  useEffect(() => { showChecked(list.current); }, []);
  const chooseFirst = (event: KeyboardEvent): void => {
    const first = found.find((agent) => agent.is_ready);
    if (event.key !== "Enter" || event.nativeEvent.isComposing || query.trim() === "" || first === undefined) return;
    event.preventDefault();
    onChoose(first);
    setQuery("");
    onDone();
  };
  return (
    <div className={styles.picker}>
      {hasSearch && (
        <>
          <input
            type="search"
            className={styles.search}
            aria-label="Search agents"
            placeholder={`Search ${agents.length} agents`}
            value={query}
            onChange={(event) => { setQuery(event.target.value); }}
            onKeyDown={chooseFirst}
          />
          <p role="status" className="visually-hidden">{query.trim() !== "" && formatCount(found.length, "agent")}</p>
        </>
      )}
      {found.length === 0 ? <p className={styles.none}>No matching agents.</p> : (
        <div ref={list} role="radiogroup" aria-label="Agent" className={styles.list}>
          {found.map((agent) => (
            <Choice key={agent.id} agent={agent} isChosen={agent.id === chosen?.id} onChoose={onChoose} onDone={onDone} />
          ))}
        </div>
      )}
    </div>
  );
}

interface ChoiceProps {
  agent: Agent;
  isChosen: boolean;
  onChoose: (agent: Agent) => void;
  onDone: () => void;
}

/** The radio button covers its card, so that the focus ring and the clicks of the card are its own. */
function Choice({ agent, isChosen, onChoose, onDone }: ChoiceProps): JSX.Element {
  const id = useId();
  const about = escapeDirectionControls(describeAgent(agent));
  const finish = (event: MouseEvent<HTMLInputElement, PointerEvent>): void => {
    // Only a mouse: arrow keys and screen readers stay here, and a touch would open the keyboard.
    if (event.nativeEvent.pointerType === "mouse") onDone();
  };
  return (
    <div className={styles.choice}>
      <AgentMark agent={agent} />
      <div>
        <label htmlFor={id} className={styles.title} dir="auto">{escapeDirectionControls(agent.title)}</label>
        {about !== "" && <p id={`${id}-about`} className={agent.error === undefined && agent.problems.length === 0 ? styles.about : styles.refused} dir="auto">{about}</p>}
      </div>
      <input
        type="radio"
        id={id}
        name="agent"
        className={styles.radio}
        {...(about === "" ? {} : { title: about, "aria-describedby": `${id}-about` })}
        checked={isChosen}
        disabled={!agent.is_ready}
        onChange={() => { onChoose(agent); }}
        onClick={finish}
      />
    </div>
  );
}

/** A chosen agent may be far down the list. */
function showChecked(list: HTMLElement | null): void {
  const card = list?.querySelector("input:checked")?.parentElement;
  if (list && card) list.scrollTop = card.offsetTop - (list.clientHeight - card.clientHeight) / 2;
}
