/** Whether the list goes along with its end: as long as the person has not scrolled up. */

/** How a scrolled element stands, in pixels. */
export interface Position {
  readonly top: number;
  readonly height: number;
  readonly view: number;
}

/** So near to the end counts as there. */
export const NEAR_END_PX = 60;
/** Browsers round what they are told. */
const ROUNDING_PX = 2;

/**
 * Whether it follows after it was scrolled. What grows pushes the end away without scrolling, and what shrinks moves the
 * view up by itself: only a view that went up over content that did not shrink was moved by the person.
 */
export function isFollowing(before: Position, now: Position, was: boolean): boolean {
  if (isAtEnd(now)) return true;
  const wentUp = now.top < before.top - ROUNDING_PX;
  const shrank = now.height < before.height - ROUNDING_PX;
  return was && !(wentUp && !shrank);
}

export function isAtEnd({ top, height, view }: Position): boolean {
  return height - top - view <= NEAR_END_PX;
}
