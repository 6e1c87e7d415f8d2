/** The agents that the user may choose from: the chosen one, a search, and the mark that stands for each. */
import type { Agent, Scope } from "../api";

const KEY = "everturn.agent.";
/** Names the default agent, whichever that is. */
const DEFAULT_ID = "default";
/** How much of an icon or title is examined for its mark. */
const MAX_READ_CHARS = 64;
export const EMOJI = /\p{Extended_Pictographic}|\p{RI}|\u20e3/u;
const LETTER = /[\p{L}\p{N}]/u;
const VISIBLE = /[\p{L}\p{N}\p{P}\p{S}]/u;

/** The agent with this id if it can run; otherwise the default one, or the first that can run. */
export function chooseAgent(agents: readonly Agent[], id: string | null): Agent | undefined {
  const ready = agents.filter((agent) => agent.is_ready);
  return ready.find((agent) => agent.id === id) ?? ready.find((agent) => agent.is_default) ?? ready[0];
}

/** The agent of a conversation; one without an id has the default agent. */
export function findAgent(agents: readonly Agent[], id: string = DEFAULT_ID): Agent | undefined {
  return agents.find((agent) => agent.id === id) ?? (id === DEFAULT_ID ? agents.find((agent) => agent.is_default) : undefined);
}

/** Those whose title, description or id contain all words of the query. */
export function searchAgents(agents: readonly Agent[], query: string): readonly Agent[] {
  const words = fold(query).split(/\s+/).filter((word) => word !== "");
  return agents.filter(({ title, description, id }) => {
    const text = fold(`${title} ${description} ${id}`);
    return words.every((word) => text.includes(word));
  });
}

/** What it does or why it does not; only operators get agents that can't run, errors, and problems. */
export function describeAgent({ description, is_ready: isReady, error, problems }: Agent): string {
  if (error !== undefined) return isReady ? `The previous version is in use. The newest one has an error: ${error}` : `It can’t run: ${error}`;
  if (!isReady) return "It can’t run at the moment.";
  return [description, ...problems.map((problem) => `Problem: ${problem}`)].filter((text) => text !== "").join(" ");
}

/** An emoji or at most two letters: of the icon, else the initials of the title. */
export function makeMark({ icon, title }: Pick<Agent, "icon" | "title">): string {
  const [first, second] = splitChars(icon);
  if (first !== undefined) return EMOJI.test(first) ? first : first + (second ?? "");
  return title.slice(0, MAX_READ_CHARS).split(/\s+/).flatMap((word) => splitChars(word).find((char) => LETTER.test(char)) ?? []).slice(0, 2).join("").toUpperCase();
}

/** The id of the agent that was last chosen in this browser; null for the default one. */
export function loadChoice(storage: Storage, scope: Scope): string | null {
  return storage.getItem(keyOf(scope));
}

/** Stores nothing for the default agent, so that the choice follows the server's default. */
export function saveChoice(storage: Storage, scope: Scope, agent: Agent): void {
  if (agent.is_default) storage.removeItem(keyOf(scope));
  else storage.setItem(keyOf(scope), agent.id);
}

/** Whether a starter is only the beginning of a message, which the user completes. */
export function isIncomplete(starter: string): boolean {
  return /(…|\.\.\.|:)$/.test(starter.trimEnd());
}

function splitChars(text: string): string[] {
  const parts = new Intl.Segmenter().segment(text.slice(0, MAX_READ_CHARS).trim());
  return Array.from(parts, ({ segment }) => segment).filter((char) => VISIBLE.test(char));
}

function fold(text: string): string {
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
}

function keyOf({ tenant, project }: Scope): string {
  return `${KEY}${encodeURIComponent(tenant)}/${encodeURIComponent(project)}`;
}
