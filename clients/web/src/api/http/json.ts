// Reads JSON responses and drops null fields, so that the client never sees null.
import { InvalidResponse } from "./errors";

/** Fields with foreign content (tool arguments, payloads of blocks), in which null has a meaning. */
const FOREIGN = new Set(["params", "body", "payload"]);

export function parseJson(text: string, keepsNulls = false): unknown {
  try {
    const parsed: unknown = JSON.parse(text);
    return keepsNulls ? parsed : dropNulls(parsed);
  } catch (error) {
    throw new InvalidResponse("it is not valid JSON", error);
  }
}

export function dropNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(dropNulls);
  if (typeof value !== "object" || value === null) return value;
  const kept = Object.entries(value).filter(([, field]) => field !== null);
  return Object.fromEntries(kept.map(([name, field]) => [name, FOREIGN.has(name) ? field : dropNulls(field)]));
}
