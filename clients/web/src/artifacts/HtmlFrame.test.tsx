import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";

import { HtmlFrame } from "./HtmlFrame";

test("a generated page runs only on request, beside a notice that it is generated", async () => {
  const { container, rerender } = render(<HtmlFrame html="<script>1</script>" />);

  expect(container.querySelector("iframe")).toBeNull();
  expect(screen.getByText(/agent generated this page.*passwords/)).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Run this page" }));
  expect(screen.getByTitle("Page made by the agent")).toHaveAttribute("sandbox", "allow-scripts");
  expect(screen.getByText(/agent generated this page/)).toBeVisible();
  rerender(<HtmlFrame html="<script>2</script>" />);

  expect(container.querySelector("iframe")).toBeNull();
});
