/** Keeps the end of a scrolled list in view while it grows, whatever grows: text, rows, images that load late. */
import { useCallback, useEffect, useRef, useState } from "react";

import { isAtEnd, isFollowing } from "./following";
import type { Position } from "./following";

/** What a person scrolls with. The list moves itself up too, when rows turn out to be shorter than it thought. */
const INPUTS = ["wheel", "touchmove", "pointerdown", "keydown"] as const;
/** So long after an input, or after what it has moved, a move is still the person's. */
const INPUT_MS = 3_000;

interface Following {
  isThere: boolean;
  /** Takes the element that Virtuoso scrolls. */
  watch: (element: HTMLElement | null | Window) => void;
  /** Go to the end and stay there. */
  follow: () => void;
}

/** Where the list does not begin at its end, it is the person who goes there. */
export function useFollowing(beginsAtEnd: boolean): Following {
  const [scroller, setScroller] = useState<HTMLElement | null>(null);
  const [isThere, setThere] = useState(beginsAtEnd);
  const wants = useRef(beginsAtEnd);
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
    let touchedAt = -Infinity;
    const onInput = (): void => { touchedAt = performance.now(); };
    const onScroll = (): void => {
      const now = read(scroller);
      const isPersons = performance.now() - touchedAt < INPUT_MS;
      // A bar that is dragged for long tells of no more than its beginning.
      if (isPersons) onInput();
      const isTouched = touchedAt > -Infinity;
      if (isPersons || (isTouched && !wants.current)) note(isFollowing(before, now, wants.current));
      else if (!wants.current) setThere(isAtEnd(now));
      before = now;
    };
    for (const input of INPUTS) scroller.addEventListener(input, onInput, { passive: true });
    const onGrowth = (): void => {
      if (wants.current) toEnd(scroller);
      else setThere(isAtEnd(read(scroller)));
    };
    const sizes = new ResizeObserver(onGrowth);
    sizes.observe(scroller);
    const rows = scroller.querySelector("[data-testid=virtuoso-item-list]");
    if (rows !== null) sizes.observe(rows);
    scroller.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      sizes.disconnect();
      for (const input of INPUTS) scroller.removeEventListener(input, onInput);
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
