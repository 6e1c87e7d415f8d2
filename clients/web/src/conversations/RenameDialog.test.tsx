import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";

import { buildConversation } from "../testing/builders";
import { problemResponse, renderInPage } from "../testing/harness";
import type { Answer, Page } from "../testing/harness";
import { RenameDialog } from "./RenameDialog";

const CONVERSATION = buildConversation({ title: "Sales" });
const onClose = vi.fn();

function show(answer: () => Answer | Promise<Answer>): Page {
  return renderInPage(<RenameDialog conversation={CONVERSATION} onClose={onClose} onChanged={vi.fn()} returnTo={() => null} />, answer);
}

test("a title is sent once, however often Enter is pressed", async () => {
  const { requests } = show(() => new Promise(() => undefined));

  await userEvent.type(await screen.findByLabelText("Title"), " 2026{Enter}{Enter}");

  expect(requests).toMatchObject([{ method: "PATCH", path: "/conv_1", body: { title: "Sales 2026" } }]);
});

test("a rejected title is reported and can be sent again", async () => {
  show(() => problemResponse(422, "It is too long."));

  await userEvent.type(await screen.findByLabelText("Title"), "!{Enter}");

  expect(await screen.findByRole("alert")).toHaveTextContent("It is too long.");
  expect(screen.getByRole("button", { name: "Rename" })).toBeEnabled();
  expect(onClose).not.toHaveBeenCalled();
});
