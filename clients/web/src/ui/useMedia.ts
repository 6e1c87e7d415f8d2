/** Whether a media query currently matches. */
import { useCallback, useMemo, useSyncExternalStore } from "react";

export function useMedia(query: string): boolean {
  const media = useMemo(() => window.matchMedia(query), [query]);
  const subscribe = useCallback((listener: () => void) => {
    media.addEventListener("change", listener);
    return () => { media.removeEventListener("change", listener); };
  }, [media]);
  return useSyncExternalStore(subscribe, () => media.matches);
}
