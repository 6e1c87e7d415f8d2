// @vitest-environment node
import { expect, test } from "vitest";

import { describeFailure } from "./failures";

const problem = { type: "urn:everturn:problem:model-unavailable", title: "The model did not answer.", status: 503, detail: "" };

test("a failure is described once, in plain words, with what to do about it", () => {
  const failure = describeFailure({ ...problem, detail: "The language model did not answer. 500 server_error: Error code: 500" });

  expect(failure.what).toBe("The model didn’t answer.");
  expect(failure.advice).toBe("Try again in a moment.");
  expect(failure.details).toBe("The language model did not answer. 500 server_error: Error code: 500.");
  expect(JSON.stringify(failure)).not.toContain("..");
});

test("an unknown kind of failure shows the server's text once", () => {
  const unknown = { ...problem, type: "urn:everturn:problem:newer", title: "The budget is used up." };

  expect(describeFailure({ ...unknown, detail: "The budget is used up. It is renewed tomorrow." })).toEqual({ what: "The budget is used up.", advice: "", details: "It is renewed tomorrow.", isRetryable: true });
  expect(describeFailure(unknown).details).toBe("");
});

test("refusals, content filters, output limits and server failures are named", () => {
  const kinds = ["model-refused", "content-filtered", "output-limit", "internal-error", "workflow-failed"];

  const said = kinds.map((kind) => describeFailure({ ...problem, type: `urn:everturn:problem:${kind}`, title: "Kept for details" }).what);

  expect(said).toEqual([
    "The model declined to answer.",
    "The model provider’s content filter blocked the answer.",
    "The model used up its output limit before it answered.",
    "The server failed while working on this answer.",
    "This agent failed while working on the answer.",
  ]);
});
