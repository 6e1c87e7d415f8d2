import { render, screen } from "@testing-library/react";
import type { JSX } from "react";
import { expect, test, vi } from "vitest";

import { ErrorBoundary } from "./ErrorBoundary";

function Missing(): JSX.Element {
  throw new TypeError("Failed to fetch dynamically imported module");
}

test("an error is shown in place of its component, and siblings stay", () => {
  vi.spyOn(console, "error").mockImplementation(() => undefined);
  render(<><p>the conversation</p><ErrorBoundary fallback={(error) => <p role="alert">{error.message}</p>}><Missing /></ErrorBoundary></>);

  expect(screen.getByText("the conversation")).toBeVisible();
  expect(screen.getByRole("alert")).toHaveTextContent("Failed to fetch dynamically imported module");
});

test("a component without an error is shown as usual", () => {
  render(<ErrorBoundary fallback={() => <p role="alert" />}><p>all is well</p></ErrorBoundary>);

  expect(screen.getByText("all is well")).toBeVisible();
  expect(screen.queryByRole("alert")).toBeNull();
});
