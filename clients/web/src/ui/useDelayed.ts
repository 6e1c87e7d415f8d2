/** A value that follows another one when that has rested for a moment. */
import { useEffect, useState } from "react";

export function useDelayed<Value>(value: Value, delayMs: number): Value {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => { setRested(value); }, delayMs);
    return () => { clearTimeout(timer); };
  }, [value, delayMs]);
  return rested;
}
