// @vitest-environment node
import { expect, test } from "vitest";

import { buildSignal } from "../../testing/builders";
import { sayReceipt } from "./receipts";

test.each([
  [buildSignal(), "You added · waits to be taken up"],
  [buildSignal({ state: "applied", round: 3 }), "You added · taken up in round 3"],
  [buildSignal({ kind: "steer", state: "applied" }), "You redirected · taken up"],
  [buildSignal({ kind: "steer", text: "", state: "expired" }), "You stopped the turn · came too late"],
  [buildSignal({ kind: "event", state: "queued", event: { kind: "form", reactive: false } }), "Event form · waits for the next turn"],
  [buildSignal({ state: "promoted" }), "You added · became the next turn"],
  [buildSignal({ state: "retracted" }), "You added · taken back"],
])("a receipt says what it is and how far it has come", (signal, said) => {
  expect(sayReceipt(signal)).toBe(said);
});
