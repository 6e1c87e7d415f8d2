import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";

import type { StepView, TurnView } from "../api";
import { buildTurn } from "../testing/builders";
import { renderInPage } from "../testing/harness";
import { ProjectButton } from "./ProjectButton";

function didCall(tool_id: string, params: Record<string, unknown>, more: Partial<StepView> = {}): TurnView {
  return buildTurn({ steps: [{ step: "s", status: "completed", title: tool_id, round: 1, tool_id, params, ...more }] });
}

test("the project can be opened as soon as a turn has ended that changed files, and nothing is asked before", async () => {
  const written = didCall("react.write", { path: "files/a.py" });
  const { requests, opened, rerender } = renderInPage(<ProjectButton turns={[{ ...written, status: "running" }]} />, () => ({ status: 200, body: {} }));
  expect(screen.queryByRole("button")).toBeNull();

  rerender(<ProjectButton turns={[written, buildTurn({ turn_id: "turn_2" })]} />);
  await userEvent.click(screen.getByRole("button", { name: "Project" }));

  expect(opened).toEqual([{ kind: "project" }]);
  expect(requests).toEqual([]);
});

test.each([
  [true, didCall("react.write", { path: "a.py" })],
  [false, didCall("react.write", { path: "outputs/a.md" })],
  [false, didCall("react.write", { path: "files/a.py" }, { status: "error" })],
  [true, didCall("react.patch", { path: "files/a.py" })],
  [true, didCall("git.import", { paths: ["src"] })],
  [false, didCall("git.log", {})],
  [true, didCall("exec_tools.execute_code_python", { contract: [{ filepath: "files/a.csv" }] })],
  [true, didCall("exec_tools.execute_code_python", {}, { code: "open('files/a.csv', 'w')" })],
  [false, didCall("exec_tools.execute_code_python", {}, { code: "print(1)" })],
  [false, buildTurn({})],
])("whether there is a project: %s", (isSo, turn) => {
  renderInPage(<ProjectButton turns={[turn]} />, () => ({ status: 200, body: {} }));

  expect(screen.queryAllByRole("button")).toHaveLength(isSo ? 1 : 0);
});
