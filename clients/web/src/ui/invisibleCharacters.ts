/** Shows invisible characters, and characters that change the order of others, as code points: `\u{202e}`. */

const INVISIBLE = /\p{Cf}|\p{Zl}|\p{Zp}|\u034f|[\u115f\u1160]|\u17b4|\u17b5|[\u2800\u3164\uffa0]/gu;
const DIRECTION_CONTROLS = /[\u202a-\u202e\u2066-\u2069]/g;
const DIRECTION_OVERRIDES = /[\u202d\u202e]/g;

/** All of them, for approvals: the user sees what will be sent, not what it looks like. */
export function escapeInvisible(text: string): string {
  return text.replace(INVISIBLE, escapeChar);
}

/** Direction controls, for code, file names and text that a click sends. */
export function escapeDirectionControls(text: string): string {
  return text.replace(DIRECTION_CONTROLS, escapeChar);
}

/**
 * Direction overrides, for prose: no language needs them. Embeddings and isolates are needed, and end with their element.
 */
export function escapeDirectionOverrides(text: string): string {
  return text.replace(DIRECTION_OVERRIDES, escapeChar);
}

function escapeChar(char: string): string {
  return `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`;
}
