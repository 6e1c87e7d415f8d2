/** Announces the milestones of the running turn to screen readers. */
import { useEffect, useRef } from "react";

import type { TurnView } from "../api";
import { useAnnounce } from "../ui/announcer";
import { describeChange } from "./announcements";

export function useAnnouncedTurn(turn: TurnView | undefined): void {
  const announce = useAnnounce();
  const before = useRef<TurnView | undefined>(undefined);
  useEffect(() => {
    announce(describeChange(before.current, turn));
    before.current = turn;
  }, [turn, announce]);
}
