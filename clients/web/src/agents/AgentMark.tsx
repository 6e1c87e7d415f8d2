/** The square with the emoji or the letters of an agent. Its title stands beside it. */
import { clsx } from "clsx";
import type { JSX } from "react";

import type { Agent } from "../api";
import { EMOJI, makeMark } from "./agents";
import styles from "./agents.module.css";

export function AgentMark({ agent }: { agent: Agent }): JSX.Element {
  const mark = makeMark(agent);
  return <span className={clsx(styles.mark, EMOJI.test(mark) && styles.emoji)} aria-hidden>{mark}</span>;
}
