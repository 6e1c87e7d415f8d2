/** The list as a drawer on narrow screens: it takes the focus when it opens and returns it when it closes. */
import { useCallback, useEffect, useRef, useState } from "react";
import type { RefObject } from "react";

import { useBackCloses } from "../ui/useBackCloses";
import { useMedia } from "../ui/useMedia";

interface Drawer {
  isOpen: boolean;
  /** Whether it is hidden and must not be focusable. */
  isInert: boolean;
  open: () => void;
  close: () => void;
}

export function useDrawer(panel: RefObject<HTMLElement | null>, main: RefObject<HTMLElement | null>): Drawer {
  const isNarrow = useMedia("(max-width: 48rem)");
  const [isWanted, setWanted] = useState(false);
  const isOpen = isNarrow && isWanted;
  const open = useCallback(() => { setWanted(true); }, []);
  const close = useCallback(() => { setWanted(false); }, []);
  useBackCloses("drawer", isOpen, close);
  const wasOpen = useRef(false);
  useEffect(() => {
    if (isOpen) panel.current?.querySelector<HTMLElement>("button")?.focus();
    else if (wasOpen.current) main.current?.querySelector<HTMLElement>("button")?.focus();
    wasOpen.current = isOpen;
  }, [isOpen, panel, main]);
  useEffect(() => {
    if (!isOpen) return;
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      event.preventDefault();
      close();
    };
    // Captured before the conversation receives it, which would stop the turn.
    window.addEventListener("keydown", onKey, { capture: true });
    return () => { window.removeEventListener("keydown", onKey, { capture: true }); };
  }, [isOpen, close]);
  return { isOpen, isInert: isNarrow && !isOpen, open, close };
}
