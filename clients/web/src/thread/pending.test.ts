// @vitest-environment node
import { expect, test } from "vitest";

import { buildTurn } from "../testing/builders";
import { stillPending } from "./pending";

test("a message is shown as accepted until its turn is there, and then once", () => {
  const pending = [{ key: "k", turnId: "turn_1", text: "Hello", filenames: [] }];

  expect(stillPending(pending, [])).toHaveLength(1);
  expect(stillPending(pending, [buildTurn({ turn_id: "turn_1" })])).toHaveLength(0);
});
