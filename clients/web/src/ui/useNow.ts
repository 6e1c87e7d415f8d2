/** The current time, for relative times. */
import { useEffect, useState } from "react";

const TICK_MS = 20_000;

/** Milliseconds since 1970; updated every twenty seconds. */
export function useNow(): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => { setNow(Date.now()); }, TICK_MS);
    return () => { clearInterval(timer); };
  }, []);
  return now;
}
