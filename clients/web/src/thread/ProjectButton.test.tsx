import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";

import type { TurnView } from "../api";
import { buildTurn } from "../testing/builders";
import { problemResponse, renderInPage } from "../testing/harness";
import { ProjectButton } from "./ProjectButton";

const [FIRST, SECOND, THIRD] = ["turn_1", "turn_2", "turn_3"].map((id) => buildTurn({ turn_id: id })) as [TurnView, TurnView, TurnView];

test("the project can be opened as soon as a turn has ended that changed files", async () => {
  let commits: object[] = [];
  const show = (...turns: TurnView[]) => <ProjectButton conversationId="conv_1" turns={turns} />;
  const { requests, opened, rerender } = renderInPage(show(buildTurn({ status: "running" })), () => ({ status: 200, body: { commits, next_before: null } }));
  expect(requests).toEqual([]);
  rerender(show(FIRST));
  await waitFor(() => { expect(requests).toHaveLength(1); });
  expect(screen.queryByRole("button")).toBeNull();

  commits = [{}];
  rerender(show(FIRST, SECOND));
  await userEvent.click(await screen.findByRole("button", { name: "Project" }));
  expect(opened).toEqual([{ kind: "project" }]);

  rerender(show(FIRST, SECOND, THIRD));
  expect(requests.map(({ path }) => path)).toEqual(Array(2).fill("/conv_1/workspace/commits?limit=1"));
});

test("where histories can't be read there is no project", async () => {
  const { requests } = renderInPage(<ProjectButton conversationId="conv_1" turns={[FIRST]} />, () => problemResponse(403, "No."));

  await waitFor(() => { expect(requests).toHaveLength(1); });
  expect(screen.queryByRole("button")).toBeNull();
});
