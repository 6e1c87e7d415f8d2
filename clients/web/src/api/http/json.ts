// Reading answers: a field that is null is left out, so that in the whole client nothing is null.
import { BadAnswer } from "./errors";

/** Whose content is not ours: arguments of tools and payloads of blocks, in which null means something. */
const FOREIGN = new Set(["params", "body", "payload"]);

export function parseJson(text: string): unknown {
  try {
    return leaveOutNulls(JSON.parse(text));
  } catch (error) {
    throw new BadAnswer("it is no JSON", error);
  }
}

export function leaveOutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(leaveOutNulls);
  if (typeof value !== "object" || value === null) return value;
  const kept = Object.entries(value).filter(([, field]) => field !== null);
  return Object.fromEntries(kept.map(([name, field]) => [name, FOREIGN.has(name) ? field : leaveOutNulls(field)]));
}
