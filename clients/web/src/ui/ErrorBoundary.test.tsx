import { render, screen } from "@testing-library/react";
import type { JSX } from "react";
import { expect, test, vi } from "vitest";

import { ErrorBoundary } from "./ErrorBoundary";

function Missing(): JSX.Element {
  throw new TypeError("Failed to fetch dynamically imported module");
}

test("what fails is shown as its error says, and what is beside it stays as it is", () => {
  vi.spyOn(console, "error").mockImplementation(() => undefined);
  render(<><p>the conversation</p><ErrorBoundary instead={(error) => <p role="alert">{error.message}</p>}><Missing /></ErrorBoundary></>);

  expect(screen.getByText("the conversation")).toBeVisible();
  expect(screen.getByRole("alert")).toHaveTextContent("Failed to fetch dynamically imported module");
});

test("what does not fail is shown as it is", () => {
  render(<ErrorBoundary instead={() => <p role="alert" />}><p>all is well</p></ErrorBoundary>);

  expect(screen.getByText("all is well")).toBeVisible();
  expect(screen.queryByRole("alert")).toBeNull();
});
