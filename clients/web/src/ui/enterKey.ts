/** What Enter does where a message is written: it submits, and with Shift it adds a line. On touch screens it adds a line. */
import type { KeyboardEvent } from "react";

/** Whether the person points with a finger, and so writes on the screen. */
export function isTouch(): boolean {
  return window.matchMedia("(pointer: coarse)").matches;
}

export function submitByEnter(event: KeyboardEvent, submit: () => Promise<void>): void {
  // While a word is being composed, Enter takes the suggestion.
  if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
  // A keyboard on the screen has no Shift+Enter; a button submits there, and Ctrl+Enter of a keyboard that is attached.
  if (isTouch() && !event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  void submit();
}
