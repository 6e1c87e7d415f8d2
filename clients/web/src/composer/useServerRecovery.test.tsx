import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { renderHook } from "@testing-library/react";
import { expect, test, vi } from "vitest";

import { useServerRecovery } from "./useServerRecovery";

test("a response is reported while the server is lost, failures and local data are not", async () => {
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  const onRecovered = vi.fn();
  const { rerender } = renderHook(({ isLost }) => { useServerRecovery(isLost, onRecovered); }, {
    initialProps: { isLost: true },
    wrapper: ({ children }) => <QueryClientProvider client={queries}>{children}</QueryClientProvider>,
  });

  queries.setQueryData(["here"], 1);
  await expect(queries.query({ queryKey: ["away"], queryFn: () => Promise.reject(new Error("It is away.")) })).rejects.toThrow("It is away.");
  expect(onRecovered).not.toHaveBeenCalled();
  await queries.query({ queryKey: ["there"], queryFn: () => Promise.resolve(1) });
  expect(onRecovered).toHaveBeenCalledOnce();

  rerender({ isLost: false });
  await queries.query({ queryKey: ["well"], queryFn: () => Promise.resolve(1) });
  expect(onRecovered).toHaveBeenCalledOnce();
});
