/** Syntax highlighting. Loaded with the first code block; returns elements, never HTML. */
import { toJsxRuntime } from "hast-util-to-jsx-runtime";
import { common, createLowlight } from "lowlight";
import type { ReactElement } from "react";
import { Fragment, jsx, jsxs } from "react/jsx-runtime";

const lowlight = createLowlight(common);

/** The highlighted code; null for an unknown language. */
export function highlight(code: string, language: string): ReactElement | null {
  if (!lowlight.registered(language)) return null;
  return toJsxRuntime(lowlight.highlight(language, code), { Fragment, jsx, jsxs }) as ReactElement;
}
