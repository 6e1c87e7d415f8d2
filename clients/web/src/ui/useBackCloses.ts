/**
 * While something covers the whole page, Back closes it instead of leaving the page: it has an entry of its own in the
 * history, with the same address. The entry is left whenever nothing covers the page, also after a reload or by Forward.
 */
import { useEffect, useRef } from "react";

const COVERED = "everturn.covered.";

/** `name` tells the entry from those of others that cover the page. */
export function useBackCloses(name: string, isCovered: boolean, close: () => void): void {
  const isLeaving = useRef(false);
  useEffect(() => {
    const leave = (): void => {
      if (isLeaving.current) return;
      isLeaving.current = true;
      window.history.back();
    };
    const onPop = (): void => {
      const hasLeft = isLeaving.current;
      isLeaving.current = false;
      if (isAtEntry(name)) {
        if (!isCovered) leave();
      } else if (isCovered) {
        // Going back takes a moment. What was opened in it needs an entry as well.
        if (hasLeft) enter(name);
        else close();
      }
    };
    if (isCovered && !isAtEntry(name)) enter(name);
    if (!isCovered && isAtEntry(name)) leave();
    window.addEventListener("popstate", onPop);
    return () => { window.removeEventListener("popstate", onPop); };
  }, [name, isCovered, close]);
}

function isAtEntry(name: string): boolean {
  return window.history.state === COVERED + name;
}

function enter(name: string): void {
  window.history.pushState(COVERED + name, "");
}
