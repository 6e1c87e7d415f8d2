import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { renderHook } from "@testing-library/react";
import { expect, test, vi } from "vitest";

import { useAnswering } from "./useAnswering";

test("an answer is told while the server is lost; a failure, and what is not from the server, is none", async () => {
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  const onAnswer = vi.fn();
  const { rerender } = renderHook(({ isLost }) => { useAnswering(isLost, onAnswer); }, {
    initialProps: { isLost: true },
    wrapper: ({ children }) => <QueryClientProvider client={queries}>{children}</QueryClientProvider>,
  });

  queries.setQueryData(["here"], 1);
  await expect(queries.query({ queryKey: ["away"], queryFn: () => Promise.reject(new Error("It is away.")) })).rejects.toThrow("It is away.");
  expect(onAnswer).not.toHaveBeenCalled();
  await queries.query({ queryKey: ["there"], queryFn: () => Promise.resolve(1) });
  expect(onAnswer).toHaveBeenCalledOnce();

  rerender({ isLost: false });
  await queries.query({ queryKey: ["well"], queryFn: () => Promise.resolve(1) });
  expect(onAnswer).toHaveBeenCalledOnce();
});
