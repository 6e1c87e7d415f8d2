/** Detects that the server responds again, from any successful query of the page. */
import { useQueryClient } from "@tanstack/react-query";
import { useLayoutEffect } from "react";

/** While `isLost`, `onRecovered` is called when something was read from the server. */
export function useServerRecovery(isLost: boolean, onRecovered: () => void): void {
  const queries = useQueryClient();
  // Before the page shows the loss: what is read from then on counts.
  useLayoutEffect(() => {
    if (!isLost) return;
    return queries.getQueryCache().subscribe((event) => {
      if (event.type === "updated" && event.action.type === "success" && event.action.manual !== true) onRecovered();
    });
  }, [queries, isLost, onRecovered]);
}
