/** A value that changes only after another one has been stable for a moment. */
import { useEffect, useState } from "react";

export function useDelayed<Value>(value: Value, delayMs: number): Value {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => { setRested(value); }, delayMs);
    return () => { clearTimeout(timer); };
  }, [value, delayMs]);
  return rested;
}
