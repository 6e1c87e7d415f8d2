import { render } from "@testing-library/react";
import { expect, test } from "vitest";

import { highlight } from "./highlighter";

test("keywords of a known language are marked and the code is unchanged", () => {
  const code = 'def f():\n    return "<b>"';
  const { container } = render(<pre>{highlight(code, "python")}</pre>);

  expect(container.querySelector(".hljs-keyword")).toHaveTextContent("def");
  expect(container.textContent).toBe(code);
});

test("an unknown language is not highlighted", () => {
  expect(highlight("x", "no-such-language")).toBeNull();
});
