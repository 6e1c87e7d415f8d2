/** A line that expands. Collapsed content is not rendered, so long results cost nothing. */
import { clsx } from "clsx";
import { ChevronRight } from "lucide-react";
import { useId, useState } from "react";
import type { JSX, ReactNode } from "react";

import styles from "./Disclosure.module.css";

interface DisclosureProps {
  summary: ReactNode;
  children: () => ReactNode;
  startsOpen?: boolean;
  className?: string | undefined;
  label?: string;
}

export function Disclosure({ summary, children, startsOpen = false, className, label }: DisclosureProps): JSX.Element {
  const [isOpen, setOpen] = useState(startsOpen);
  const id = useId();
  return (
    <div className={clsx(styles.disclosure, className)}>
      <button
        type="button"
        className={styles.summary}
        aria-expanded={isOpen}
        aria-controls={isOpen ? id : undefined}
        aria-label={label}
        onClick={() => { setOpen(!isOpen); }}
      >
        <ChevronRight className={clsx(styles.mark, isOpen && styles.open)} aria-hidden />
        {summary}
      </button>
      {isOpen && (
        <div id={id} className={styles.body}>
          {children()}
        </div>
      )}
    </div>
  );
}
