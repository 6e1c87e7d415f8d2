import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import type { JSX } from "react";
import { expect, test, vi } from "vitest";

import { renderInPage } from "../testing/harness";
import { PanelBoundary } from "./PanelBoundary";

function Missing(): JSX.Element {
  throw new TypeError("Failed to fetch dynamically imported module");
}

test("a panel that fails says so, can be closed, and leaves the conversation as it is", async () => {
  vi.spyOn(console, "error").mockImplementation(() => undefined);
  const onClose = vi.fn();
  renderInPage(<><p>the conversation</p><PanelBoundary onClose={onClose}><Missing /></PanelBoundary></>);

  expect(screen.getByText("the conversation")).toBeVisible();
  expect(screen.getByRole("alert")).toHaveTextContent("Failed to fetch dynamically imported module");
  await userEvent.click(screen.getByRole("button", { name: "Close panel" }));

  expect(onClose).toHaveBeenCalledOnce();
});
