import { QueryClient } from "@tanstack/react-query";
import { beforeEach, expect, test, vi } from "vitest";

import { releaseForgotten } from "./useFile";

const released = vi.fn();

beforeEach(() => {
  released.mockReset();
  // jsdom has none.
  Object.assign(URL, { revokeObjectURL: released });
});

test("content is let go when its address is forgotten, and all of it when the person leaves", () => {
  const client = new QueryClient();
  const releaseAll = releaseForgotten(client.getQueryCache());
  for (const id of ["a", "b"]) client.setQueryData(["file-address", id], `blob:${id}`);
  client.setQueryData(["file-text", "c"], "blob:c");

  client.removeQueries({ queryKey: ["file-address", "a"] });
  client.removeQueries({ queryKey: ["file-text"] });
  expect(released.mock.calls).toEqual([["blob:a"]]);
  releaseAll();

  expect(released.mock.calls).toEqual([["blob:a"], ["blob:b"]]);
});
