/** Keeps the end of a scrolled list in view while it grows, whatever grows: text, rows, images that load late. */
import { useCallback, useEffect, useRef, useState } from "react";

import { isFollowing } from "./following";
import type { Position } from "./following";

interface Following {
  isThere: boolean;
  /** Takes the element that Virtuoso scrolls. */
  watch: (element: HTMLElement | null | Window) => void;
  /** Go to the end and stay there. */
  follow: () => void;
}

export function useFollowing(): Following {
  const [scroller, setScroller] = useState<HTMLElement | null>(null);
  const [isThere, setThere] = useState(true);
  const wants = useRef(true);
  const watch = useCallback((element: HTMLElement | null | Window) => {
    setScroller(element instanceof HTMLElement ? element : null);
  }, []);
  const note = useCallback((now: boolean) => {
    wants.current = now;
    setThere(now);
  }, []);
  useEffect(() => {
    if (scroller === null) return;
    let before = read(scroller);
    const onScroll = (): void => {
      const now = read(scroller);
      note(isFollowing(before, now, wants.current));
      before = now;
    };
    const onGrowth = (): void => { if (wants.current) toEnd(scroller); };
    const sizes = new ResizeObserver(onGrowth);
    sizes.observe(scroller);
    const rows = scroller.querySelector("[data-testid=virtuoso-item-list]");
    if (rows !== null) sizes.observe(rows);
    scroller.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      sizes.disconnect();
      scroller.removeEventListener("scroll", onScroll);
    };
  }, [scroller, note]);
  const follow = useCallback(() => {
    note(true);
    if (scroller !== null) toEnd(scroller);
  }, [scroller, note]);
  return { isThere, watch, follow };
}

function toEnd(scroller: HTMLElement): void {
  scroller.scrollTop = scroller.scrollHeight;
}

function read({ scrollTop: top, scrollHeight: height, clientHeight: view }: HTMLElement): Position {
  return { top, height, view };
}
