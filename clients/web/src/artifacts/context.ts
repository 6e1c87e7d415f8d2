/** What is open beside the conversation, and how to open something there. */
import { createContext, use } from "react";

import type { FileView } from "../api";

export type ArtifactTarget =
  | { kind: "file"; file: FileView }
  /** A text that the agent writes for the person, maybe still growing. */
  | { kind: "written"; turnId: string; round: number; channel: string; instance: number }
  | { kind: "context"; turnId: string; rounds: number };

export interface Artifacts {
  open: (target: ArtifactTarget) => void;
}

export const ArtifactsContext = createContext<Artifacts | null>(null);

export function useArtifacts(): Artifacts {
  const artifacts = use(ArtifactsContext);
  if (artifacts === null) throw new Error("There is no place for artifacts around this component.");
  return artifacts;
}
