/** Notices that the server answers again: what the page reads anyhow gets through. */
import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";

/** While `isLost`, `onAnswer` is called when something was read from the server. */
export function useAnswering(isLost: boolean, onAnswer: () => void): void {
  const queries = useQueryClient();
  useEffect(() => {
    if (!isLost) return;
    return queries.getQueryCache().subscribe((event) => {
      if (event.type === "updated" && event.action.type === "success" && event.action.manual !== true) onAnswer();
    });
  }, [queries, isLost, onAnswer]);
}
