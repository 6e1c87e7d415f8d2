/** Opens artifacts beside the conversation. */
import { createContext, use } from "react";

import type { FileView, Widget } from "../api";

export type ArtifactTarget =
  | { kind: "file"; file: FileView }
  /** A document that the agent writes, possibly still growing. */
  | { kind: "written"; turnId: string; round: number; channel: string; instance: number }
  | { kind: "context"; turnId: string; rounds: number }
  | { kind: "project" }
  | { kind: "widget"; agentId: string; widget: Widget };

export interface Artifacts {
  open: (target: ArtifactTarget) => void;
}

export const ArtifactsContext = createContext<Artifacts | null>(null);

export function useArtifacts(): Artifacts {
  const artifacts = use(ArtifactsContext);
  if (artifacts === null) throw new Error("ArtifactsContext is missing around this component.");
  return artifacts;
}
