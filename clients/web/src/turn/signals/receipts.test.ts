import { expect, test } from "vitest";

import { buildSignal } from "../../testing/builders";
import { describeReceipt, describeSignal } from "./receipts";

test("a receipt describes the state of its message", () => {
  expect(describeReceipt(buildSignal())).toBe("Sent");
  expect(describeReceipt(buildSignal({ state: "applied", round: 2 }))).toBe("Delivered");
  expect(describeReceipt(buildSignal({ kind: "steer", text: "Only the south." }))).toBe("Redirect · Sent");
  expect(describeReceipt(buildSignal({ state: "retracted" }))).toBe("Retracted");
});

test("a redirect without text is a stop", () => {
  expect(describeSignal(buildSignal({ kind: "steer", text: " " }))).toBe("You stopped this answer");
  expect(describeReceipt(buildSignal({ kind: "steer", text: "" }))).toBe("Stopping…");
  expect(describeReceipt(buildSignal({ kind: "cancel", text: "", state: "expired" }))).toBe("You cancelled this answer · Arrived too late");
});
