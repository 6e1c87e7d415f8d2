/** Characters that nobody sees, or that change the order of others, shown by their numbers: `\u{202e}`. */

const UNSEEN = /\p{Cf}|\p{Zl}|\p{Zp}|\u034f|[\u115f\u1160]|\u17b4|\u17b5|[\u2800\u3164\uffa0]/gu;
const TURNING = /[\u202a-\u202e\u2066-\u2069]/g;
const OVERRIDES = /[\u202d\u202e]/g;

/** All of them, for what a person approves: what will be sent, not what it looks like. */
export function showUnseen(text: string): string {
  return text.replace(UNSEEN, escapeChar);
}

/** Those that turn the direction of a part, for code, names of files and what a click sends. */
export function showTurning(text: string): string {
  return text.replace(TURNING, escapeChar);
}

/**
 * Those that make letters run against their own direction, for prose: no language is written with them. Embeddings and
 * isolates are, and end with the element that they are in.
 */
export function showOverrides(text: string): string {
  return text.replace(OVERRIDES, escapeChar);
}

function escapeChar(char: string): string {
  return `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`;
}
