/** Keeps the end of a scrolled list in view while anything in it grows: text, rows, or images that load late. */
import { useCallback, useEffect, useRef, useState } from "react";

import { isAtEnd, isFollowing } from "./following";
import type { Position } from "./following";

/** Events of user scrolling. The list also moves itself up when rows turn out to be shorter than estimated. */
const INPUTS = ["wheel", "touchmove", "pointerdown", "keydown"] as const;
/** How long after an input, or after a scroll that it caused, a scroll still counts as the user's. */
const INPUT_MS = 3_000;

interface Following {
  isThere: boolean;
  /** Ref of the element that Virtuoso scrolls. */
  watch: (element: HTMLElement | null | Window) => void;
  /** Scroll to the end and follow it. */
  follow: () => void;
}

/** A list that starts elsewhere follows its end only after the user scrolls there. */
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
      // A scrollbar drag sends an event only when it begins.
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
