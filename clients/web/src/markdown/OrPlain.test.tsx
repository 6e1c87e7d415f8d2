import { render, screen } from "@testing-library/react";
import type { JSX } from "react";
import { expect, test, vi } from "vitest";

import { OrPlain } from "./OrPlain";

function Fragile({ text }: { text: string }): JSX.Element {
  if (text.includes("deep")) throw new RangeError("Maximum call stack size exceeded");
  return <em>{text}</em>;
}

test("what can't be drawn is shown as it was written, beside all others, and tried again when it has changed", () => {
  vi.spyOn(console, "error").mockImplementation(() => undefined);
  const show = (text: string): JSX.Element => <><p>before</p><OrPlain text={text}><Fragile text={text} /></OrPlain></>;
  const { rerender } = render(show("too deep"));

  expect(screen.getByText("before")).toBeVisible();
  expect(screen.getByText("too deep")).toBeVisible();
  rerender(show("flat"));

  expect(screen.getByText("flat").tagName).toBe("EM");
});
