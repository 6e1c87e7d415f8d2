/** Colours for code. Loaded when the first code is shown; gives elements, never HTML. */
import { toJsxRuntime } from "hast-util-to-jsx-runtime";
import { common, createLowlight } from "lowlight";
import type { ReactElement } from "react";
import { Fragment, jsx, jsxs } from "react/jsx-runtime";

const lowlight = createLowlight(common);

/** The code with its words marked; null for a language that is not known. */
export function highlight(code: string, language: string): ReactElement | null {
  if (!lowlight.registered(language)) return null;
  return toJsxRuntime(lowlight.highlight(language, code), { Fragment, jsx, jsxs }) as ReactElement;
}
