/**
 * A page made by the agent. Its scripts run only on request, in a frame without an origin, network access, forms or
 * windows. A notice outside the frame says that the content is generated.
 */
import { Play, ShieldAlert } from "lucide-react";
import { use, useEffect, useRef, useState } from "react";
import type { JSX } from "react";

import { EmbeddedContext } from "../embed/embedding";
import { Button } from "../ui/Button";
import styles from "./artifacts.module.css";
import { FRAME_ADDRESS, FRAME_GREETING, sealHtml } from "./sealing";

export function HtmlFrame({ html }: { html: string }): JSX.Element {
  // Another page needs a new confirmation: the last one was for this page.
  return <OnePage key={html} html={html} />;
}

function OnePage({ html }: { html: string }): JSX.Element {
  const [isRunning, setRunning] = useState(false);
  if (use(EmbeddedContext)) return <p className={styles.notice}>This page can’t be run here. “Source” shows its code.</p>;
  return (
    <div className={styles.page}>
      <p className={styles.generated}>
        <ShieldAlert aria-hidden />
        <span>The agent generated this page. Don’t enter passwords, keys or personal data: the page never needs them.</span>
      </p>
      {isRunning ? <Frame html={html} /> : (
        <div className={styles.start}>
          <Button variant="primary" onClick={() => { setRunning(true); }}><Play aria-hidden /> Run this page</Button>
          <p>It runs its own scripts, without network access. “Source” shows its code.</p>
        </div>
      )}
    </div>
  );
}

function Frame({ html }: { html: string }): JSX.Element {
  const frame = useRef<HTMLIFrameElement>(null);
  useEffect(() => {
    // A frame loads one page only.
    const answer = (event: MessageEvent<unknown>): void => {
      const target = frame.current?.contentWindow;
      if (target === null || target === undefined || event.source !== target || event.data !== FRAME_GREETING) return;
      // A sandboxed frame has no origin that could be named.
      target.postMessage(sealHtml(html), "*");
      window.removeEventListener("message", answer);
    };
    window.addEventListener("message", answer);
    return () => { window.removeEventListener("message", answer); };
  }, [html]);
  return <iframe ref={frame} className={styles.frame} title="Page made by the agent" sandbox="allow-scripts" allow="" referrerPolicy="no-referrer" src={FRAME_ADDRESS} />;
}
