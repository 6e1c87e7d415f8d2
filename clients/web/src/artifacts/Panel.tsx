/** The frame of the open artifact, beside the conversation, or over it on narrow screens. Escape closes it. */
import { X } from "lucide-react";
import { useEffect, useRef } from "react";
import type { JSX, KeyboardEvent, ReactNode } from "react";

import { IconButton } from "../ui/Button";
import styles from "./artifacts.module.css";

interface PanelProps {
  title: string;
  details: string;
  tools?: ReactNode;
  children: ReactNode;
  onClose: () => void;
}

export function Panel({ title, details, tools, children, onClose }: PanelProps): JSX.Element {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => { heading.current?.focus({ preventScroll: true }); }, [title]);
  const closeByEscape = (event: KeyboardEvent): void => {
    if (event.key !== "Escape") return;
    // Escape closes the panel and must not also stop the turn.
    event.preventDefault();
    event.stopPropagation();
    onClose();
  };
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- Escape works wherever focus is inside
    <aside className={styles.panel} aria-label={title} onKeyDown={closeByEscape}>
      <header className={styles.head}>
        <h2 ref={heading} tabIndex={-1}>{title}</h2>
        <span className={styles.details}>{details}</span>
        {tools}
        <IconButton label="Close panel" icon={<X aria-hidden />} onClick={onClose} />
      </header>
      <div className={styles.content}>{children}</div>
    </aside>
  );
}
