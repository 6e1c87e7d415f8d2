/**
 * While an overlay covers the whole page, Back closes it instead of leaving the page. The overlay has its own history entry
 * with the same address, which is left whenever no overlay is open, also after a reload or by Forward.
 */
import { useEffect, useRef } from "react";

const COVERED = "everturn.covered.";

/** `name` distinguishes the entry from those of other overlays. */
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
        // Going back is asynchronous. An overlay that was opened meanwhile needs an entry as well.
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
