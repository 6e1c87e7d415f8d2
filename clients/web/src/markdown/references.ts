/** What a text may refer to besides the web: the files of its turn, and the sources that it cites. */
import { createContext } from "react";

import type { CitationView, FileView } from "../api";
import { normalizeAddress } from "./addresses";

export interface References {
  /** By normalized address. */
  readonly citations: ReadonlyMap<string, CitationView>;
  readonly files: readonly FileView[];
}

export const NO_REFERENCES: References = { citations: new Map(), files: [] };
export const ReferencesContext = createContext<References>(NO_REFERENCES);

/** The files of the whole conversation, for references to earlier ones. */
export const EarlierFilesContext = createContext<readonly FileView[]>([]);

export function buildReferences(citations: readonly CitationView[], files: readonly FileView[]): References {
  if (citations.length === 0 && files.length === 0) return NO_REFERENCES;
  return { citations: new Map(citations.map((cited) => [normalizeAddress(cited.url), cited])), files };
}

/** The file with this id or name; if several have the name, the last one created. */
export function findFile(files: readonly FileView[], wanted: { artifactId: string } | { name: string }): FileView | undefined {
  return files.findLast((file) => ("artifactId" in wanted ? file.artifact_id === wanted.artifactId : file.filename === wanted.name));
}
