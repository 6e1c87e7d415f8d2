import { act, waitFor } from "@testing-library/react";
import { expect, test } from "vitest";

import type { Agent } from "../api";
import { buildAgent } from "../testing/builders";
import { renderInPage } from "../testing/harness";
import { AgentLabel } from "./AgentLabel";

const everturn = buildAgent({ id: "everturn", title: "Everturn", is_default: true });
const support = buildAgent({ icon: "🛟" });

async function show(id: string | undefined, agents: readonly Agent[]): Promise<string> {
  const { container, queries, unmount } = renderInPage(<AgentLabel id={id} />, () => ({ status: 200, body: { bundles: agents } }));
  await waitFor(() => { expect(queries.getQueryData(["agents"])).toBeDefined(); });
  await act(() => Promise.resolve());
  const text = container.textContent;
  unmount();
  return text;
}

test("a conversation shows the mark and title of its agent", async () => {
  expect(await show("support", [everturn, support])).toBe("🛟Agent: Support");
});

test("a conversation without an agent shows the default one", async () => {
  expect(await show(undefined, [everturn, support])).toBe("EAgent: Everturn");
});

test("without a choice of agents nothing is shown", async () => {
  expect(await show("support", [support])).toBe("");
  expect(await show(undefined, [])).toBe("");
});

test("an agent that is not listed is named by its id", async () => {
  expect(await show("gone", [everturn])).toBe("Agent: gone (not available)");
});
