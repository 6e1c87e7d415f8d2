/** Tells screen readers of the landmarks of the turn that goes on. */
import { useEffect, useRef } from "react";

import type { TurnView } from "../api";
import { useAnnounce } from "../ui/announcer";
import { tellChange } from "./announcements";

export function useAnnouncedTurn(turn: TurnView | undefined): void {
  const announce = useAnnounce();
  const before = useRef<TurnView | undefined>(undefined);
  useEffect(() => {
    announce(tellChange(before.current, turn));
    before.current = turn;
  }, [turn, announce]);
}
