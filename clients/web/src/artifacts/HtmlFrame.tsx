/** A page that the agent made, in a frame that may run scripts and nothing else: no origin, no network, no forms. */
import { useEffect, useRef } from "react";
import type { JSX } from "react";

import styles from "./artifacts.module.css";
import { FRAME_ADDRESS, FRAME_GREETING, sealHtml } from "./sealing";

export function HtmlFrame({ html }: { html: string }): JSX.Element {
  // A frame takes one page in its life.
  return <OnePage key={html} html={html} />;
}

function OnePage({ html }: { html: string }): JSX.Element {
  const frame = useRef<HTMLIFrameElement>(null);
  useEffect(() => {
    const answer = (event: MessageEvent<unknown>): void => {
      const target = frame.current?.contentWindow;
      if (target === null || target === undefined || event.source !== target || event.data !== FRAME_GREETING) return;
      // It has no origin that could be named.
      target.postMessage(sealHtml(html), "*");
      window.removeEventListener("message", answer);
    };
    window.addEventListener("message", answer);
    return () => { window.removeEventListener("message", answer); };
  }, [html]);
  return <iframe ref={frame} className={styles.frame} title="Page made by the agent" sandbox="allow-scripts" referrerPolicy="no-referrer" src={FRAME_ADDRESS} />;
}
