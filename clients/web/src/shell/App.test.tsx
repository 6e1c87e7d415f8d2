import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";

import { App } from "./App";

test("the page says whose it is", () => {
  render(<App />);

  expect(screen.getByRole("heading", { level: 1 })).toHaveTextContent("Everturn");
});
