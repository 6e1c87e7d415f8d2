/** The parameters of a tool call, one name and value per line. */
import type { JSX } from "react";

import { escapeInvisible } from "../../ui/invisibleCharacters";
import styles from "./work.module.css";

type Params = Readonly<Record<string, unknown>>;

export function Parameters({ params }: { params: Params }): JSX.Element | null {
  const entries = Object.entries(params);
  if (entries.length === 0) return null;
  return (
    <dl className={styles.params}>
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <Value name={name} text={describeValue(value)} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** Longer values may need scrolling, by keyboard too. */
const LONG_CHARS = 200;
const LONG_LINES = 5;

function Value({ name, text }: { name: string; text: string }): JSX.Element {
  if (text.length < LONG_CHARS && text.split("\n", LONG_LINES).length < LONG_LINES) return <div dir="auto">{text}</div>;
  // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a region that scrolls has to take focus
  return <div role="region" aria-label={name} tabIndex={0} dir="auto">{text}</div>;
}

function describeValue(value: unknown): string {
  return escapeInvisible(typeof value === "string" ? value : JSON.stringify(value, null, 2));
}
