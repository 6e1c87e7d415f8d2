/** Whether the list follows its end: unless the user has scrolled up. */

/** Scroll position of an element, in pixels. */
export interface Position {
  readonly top: number;
  readonly height: number;
  readonly view: number;
}

/** This close to the end counts as the end. */
export const NEAR_END_PX = 60;
/** Browsers round scroll positions. */
const ROUNDING_PX = 2;

/**
 * Whether the list still follows its end after a scroll event. Growing content pushes the end away without a scroll event,
 * and shrinking content moves the view up by itself: only a view that moved up over content that did not shrink was moved
 * by the user.
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
