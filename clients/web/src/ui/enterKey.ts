/** Enter in a message field: it submits, and with Shift adds a line break. On touch screens it adds a line break. */
import type { KeyboardEvent } from "react";

/** Whether the user has a touch screen, and so an on-screen keyboard. */
export function isTouch(): boolean {
  return window.matchMedia("(pointer: coarse)").matches;
}

export function submitByEnter(event: KeyboardEvent, submit: () => Promise<void>): void {
  // While a word is being composed, Enter accepts the suggestion.
  if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
  // An on-screen keyboard has no Shift+Enter; there a button submits, or Ctrl+Enter on an attached keyboard.
  if (isTouch() && !event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  void submit();
}
