import { QueryClient } from "@tanstack/react-query";
import { beforeEach, expect, test, vi } from "vitest";

import { releaseEvicted } from "./useFile";

const released = vi.fn();

beforeEach(() => {
  released.mockReset();
  // jsdom does not implement these.
  Object.assign(URL, { revokeObjectURL: released });
});

test("content is released when its address is evicted, and all of it on sign-out", () => {
  const client = new QueryClient();
  const releaseAll = releaseEvicted(client.getQueryCache());
  for (const id of ["a", "b"]) client.setQueryData(["file-address", id], `blob:${id}`);
  client.setQueryData(["file-text", "c"], "blob:c");

  client.removeQueries({ queryKey: ["file-address", "a"] });
  client.removeQueries({ queryKey: ["file-text"] });
  expect(released.mock.calls).toEqual([["blob:a"]]);
  releaseAll();

  expect(released.mock.calls).toEqual([["blob:a"], ["blob:b"]]);
});
