/** The agents that the user may choose from, and the chosen one. */
import { useQuery } from "@tanstack/react-query";
import { useCallback, useState } from "react";

import type { Agent } from "../api";
import { useBackend, useSession } from "../session/context";
import { chooseAgent, loadChoice, saveChoice } from "./agents";

export const AGENTS_KEY = ["agents"] as const;
/** How old a list can be before it is loaded again with the next page or visit of the tab. */
const STALE_MS = 30_000;
/** The wait after a failure; nothing depends on the list, so it is not reported. */
const RETRY_MS = 15_000;
const NO_AGENTS: readonly Agent[] = [];

/** Empty until the list is known. */
export function useAgents(): readonly Agent[] {
  const backend = useBackend();
  const { data } = useQuery({
    queryKey: AGENTS_KEY,
    queryFn: ({ signal }) => backend.loadAgents(signal),
    staleTime: STALE_MS,
    refetchInterval: (query) => (query.state.status === "error" ? RETRY_MS : false),
  });
  return data?.bundles ?? NO_AGENTS;
}

export interface AgentChoice {
  agents: readonly Agent[];
  /** Undefined while the list is unknown; the server's default agent then answers. */
  chosen: Agent | undefined;
  choose: (agent: Agent) => void;
}

/** The choice is kept in this browser, for as long as the agent is listed. */
export function useAgentChoice(): AgentChoice {
  const { scope } = useSession();
  const agents = useAgents();
  const [id, setId] = useState(() => loadChoice(localStorage, scope));
  const choose = useCallback((agent: Agent) => {
    setId(agent.id);
    saveChoice(localStorage, scope, agent);
  }, [scope]);
  return { agents, chosen: chooseAgent(agents, id), choose };
}
