import { act, renderHook, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { useBackCloses } from "./useBackCloses";

const close = vi.fn();

beforeEach(() => {
  close.mockClear();
  window.history.pushState(null, "", "#/conv_1");
});

afterEach(() => { vi.restoreAllMocks(); });

/** Navigates the history like the browser's buttons, and waits for the event. */
async function go(steps: number): Promise<void> {
  const event = new Promise((resolve) => { window.addEventListener("popstate", resolve, { once: true }); });
  window.history.go(steps);
  await act(async () => { await event; });
}

const show = (isCovered: boolean) => renderHook(({ covered }) => { useBackCloses("panel", covered, close); }, { initialProps: { covered: isCovered } });

test("Back closes the overlay and keeps the address", async () => {
  show(true);

  await go(-1);

  expect(close).toHaveBeenCalledOnce();
  expect(window.location.hash).toBe("#/conv_1");
});

test("an overlay that is closed otherwise leaves no entry for Forward", async () => {
  const back = vi.spyOn(window.history, "back");
  const { rerender } = show(true);

  rerender({ covered: false });
  await waitFor(() => { expect(window.history.state).toBeNull(); });
  await go(1);

  await waitFor(() => { expect(window.history.state).toBeNull(); });
  expect(back).toHaveBeenCalledTimes(2);
  expect(close).not.toHaveBeenCalled();
});

test("an entry that is found after a reload is left", async () => {
  show(true).unmount();
  expect(window.history.state).not.toBeNull();

  show(false);

  await waitFor(() => { expect(window.history.state).toBeNull(); });
});

test("an overlay opened while the last entry is being left stays open", async () => {
  const { rerender } = show(true);
  const back = vi.spyOn(window.history, "back");
  const event = new Promise((resolve) => { window.addEventListener("popstate", resolve, { once: true }); });

  rerender({ covered: false });
  rerender({ covered: true });
  await act(async () => { await event; });

  expect(back).toHaveBeenCalledOnce();
  expect(close).not.toHaveBeenCalled();
  await go(-1);
  expect(close).toHaveBeenCalledOnce();
});
