/** Formats figures and errors for the user. */
import { ProblemError, UNKNOWN_AGENT } from "../api";

const UNITS = ["bytes", "kB", "MB", "GB"] as const;

/** A byte count for the user. */
export function formatBytes(bytes: number): string {
  let amount = bytes;
  let unit = 0;
  while (amount >= 999.5 && unit < UNITS.length - 1) {
    amount /= 1000;
    unit += 1;
  }
  const shown = unit === 0 || amount >= 100 ? Math.round(amount).toString() : amount.toFixed(1);
  return `${shown} ${unit === 0 && bytes === 1 ? "byte" : (UNITS[unit] ?? "GB")}`;
}

/** A duration in milliseconds for the user. */
export function formatDuration(durationMs: number): string {
  if (durationMs < 1000) return `${Math.max(0, Math.round(durationMs))} ms`;
  const seconds = durationMs / 1000;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** `1 step`, `2 steps`. */
export function formatCount(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** How long ago something was, in a word or two; `now` and the time are milliseconds. */
export function formatAge(then: number, now: number): string {
  const minutes = Math.floor((now - then) / 60_000);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h`;
  if (minutes < 7 * 24 * 60) return `${Math.floor(minutes / (24 * 60))} d`;
  return new Date(then).toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" });
}

/** Roughly how long until a deadline; empty if it has passed. */
export function formatTimeLeft(deadline: number, now: number): string {
  const left = deadline - now;
  if (left <= 0) return "";
  if (left < 60_000) return "less than a minute";
  const minutes = Math.floor(left / 60_000);
  if (minutes < 60) return formatCount(minutes, "minute");
  return formatCount(Math.floor(minutes / 60), "hour");
}

/** A text without line breaks, cut to `limit` characters. */
export function oneLine(text: string, limit = 120): string {
  const line = text.slice(0, limit * 4).replace(/\s+/g, " ").trim();
  return line.length <= limit ? line : `${line.slice(0, limit - 1)}…`;
}

/** What went wrong, in the server's text: the message about a field is the most precise, then the detail. */
export function describeError(error: unknown): string {
  if (error instanceof ProblemError) {
    // The server names the bundles that a program could choose instead.
    if (error.type === UNKNOWN_AGENT) return "The agent of this conversation is no longer available.";
    const fields = error.fields.map((field) => field.message).filter((message) => message !== "");
    if (fields.length > 0) return fields.join(" ");
    if (error.detail !== "") return error.detail;
  }
  return error instanceof Error && error.message !== "" ? error.message : "Something went wrong.";
}

/** The entry for `key`; `other` for a value that only a newer server knows, although the types exclude it. */
export function lookUp<Value>(table: Readonly<Record<string, Value>>, key: string, other: Value): Value {
  return Object.hasOwn(table, key) ? (table[key] as Value) : other;
}

/** The name of a conversation: its title, else `opening`, its first words. */
export function formatName(conversation: { readonly title: string }, opening = ""): string {
  if (conversation.title.trim() !== "") return conversation.title;
  return opening === "" ? "New conversation" : opening;
}
