/** The current route, which the browser's history buttons change as well. */
import { useCallback, useMemo, useSyncExternalStore } from "react";

import { readRoute, writeRoute } from "./route";
import type { Route } from "./route";

export function useRoute(): [Route, (route: Route) => void] {
  const fragment = useSyncExternalStore(subscribe, () => window.location.hash);
  const route = useMemo(() => readRoute(fragment), [fragment]);
  const go = useCallback((next: Route) => { window.location.hash = writeRoute(next); }, []);
  return [route, go];
}

function subscribe(listener: () => void): () => void {
  window.addEventListener("hashchange", listener);
  return () => { window.removeEventListener("hashchange", listener); };
}
