import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";

import { ProblemError } from "../api";
import type { ConversationSnapshot } from "../api";
import { StatusLine } from "./StatusLine";

function refuse(status: number): Pick<ConversationSnapshot, "connection" | "problem"> {
  return { connection: "refused", problem: new ProblemError({ type: "about:blank", title: "Refused", status, detail: "" }) };
}

test.each([
  ["message-circle-x", /Conversation not found/, refuse(404)],
  ["circle-alert", /Couldn’t load/, refuse(403)],
  ["hourglass", /too many tabs/, { connection: "waiting" as const }],
  ["wifi-off", /You are offline/, { connection: "offline" as const }],
])("only a broken connection has the warning icon: %s", async (icon, words, changes) => {
  render(<StatusLine live={{ state: null, toolProgress: new Map(), ...changes }} isSought={false} problems={[]} />);

  expect((await screen.findByText(words)).querySelector("svg")).toHaveClass(`lucide-${icon}`);
});
