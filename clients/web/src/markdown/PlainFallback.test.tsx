import { render, screen } from "@testing-library/react";
import type { JSX } from "react";
import { expect, test, vi } from "vitest";

import { PlainFallback } from "./PlainFallback";

function Fragile({ text }: { text: string }): JSX.Element {
  if (text.includes("deep")) throw new RangeError("Maximum call stack size exceeded");
  return <em>{text}</em>;
}

test("text that cannot be rendered is shown as plain text, and retried on change", () => {
  vi.spyOn(console, "error").mockImplementation(() => undefined);
  const show = (text: string): JSX.Element => <><p>before</p><PlainFallback text={text}><Fragile text={text} /></PlainFallback></>;
  const { rerender } = render(show("too deep"));

  expect(screen.getByText("before")).toBeVisible();
  expect(screen.getByText("too deep")).toBeVisible();
  rerender(show("flat"));

  expect(screen.getByText("flat").tagName).toBe("EM");
});
