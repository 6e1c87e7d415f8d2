/** Whether turns have written files of a project, from what they did: asking the server would make it build the history. */
import { isOpen } from "../api";
import type { StepView, TurnView } from "../api";

/** Tools that always change files of the workspace. */
const WRITERS: ReadonlySet<string> = new Set(["react.patch", "react.checkout", "git.import", "git.remove"]);
/** In references such as `fi:<turn>.files/a.py`. */
const WORKSPACE = ".files/";

/** Only a turn that has ended has a commit. What programs write without naming the folder is noticed with the next change. */
export function hasProject(turns: readonly TurnView[]): boolean {
  return turns.some((turn) => !isOpen(turn) && (turn.steps.some(writes) || turn.files.some(({ ref }) => ref.includes(WORKSPACE))));
}

function writes({ status, tool_id: tool, params, code }: StepView): boolean {
  if (status !== "completed" || tool === undefined) return false;
  if (tool === "react.write") return !isOutput(params?.["path"]);
  if (tool === "exec_tools.execute_code_python") return `${code ?? ""}${JSON.stringify(params ?? {})}`.includes("files/");
  return WRITERS.has(tool);
}

/** Of this turn: as a path, under the id of the turn, or in a reference. A path without a folder is in the workspace. */
const OUTPUT = /^(turn_\w+\/|fi:\w+\.)?outputs\//;

function isOutput(path: unknown): boolean {
  return typeof path !== "string" || OUTPUT.test(path);
}
