/** A page that the agent made, in a frame that may run scripts and nothing else: no origin, no network, no forms. */
import { useMemo } from "react";
import type { JSX } from "react";

import styles from "./artifacts.module.css";
import { sealHtml } from "./sealing";

export function HtmlFrame({ html }: { html: string }): JSX.Element {
  const sealed = useMemo(() => sealHtml(html), [html]);
  return <iframe className={styles.frame} title="Page made by the agent" sandbox="allow-scripts" referrerPolicy="no-referrer" srcDoc={sealed} />;
}
