import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";

import { Parameters } from "./Parameters";

test("characters that hide or reorder others are shown as code points", () => {
  render(<Parameters params={{ text: "Pay \u202e000001\u202c EUR\u200b", to: ["a\u2066b"] }} />);

  expect(screen.getByText("Pay \\u{202e}000001\\u{202c} EUR\\u{200b}")).toBeTruthy();
  expect(screen.getByText(/a\\u\{2066\}b/)).toBeTruthy();
});
