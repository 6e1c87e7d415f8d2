/** Opens the project of a conversation: the files that its turns wrote in the workspace. */
import { FolderGit2 } from "lucide-react";
import type { JSX } from "react";

import type { TurnView } from "../api";
import { useArtifacts } from "../files/artifacts";
import { hasProject } from "../project/writing";
import { Button } from "../ui/Button";
import styles from "./thread.module.css";

export function ProjectButton({ turns }: { turns: readonly TurnView[] }): JSX.Element | null {
  const { open } = useArtifacts();
  if (!hasProject(turns)) return null;
  return (
    <Button variant="quiet" className={styles.project} title="Project" onClick={() => { open({ kind: "project" }); }}>
      <FolderGit2 aria-hidden /> <span>Project</span>
    </Button>
  );
}
