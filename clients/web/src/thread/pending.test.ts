// @vitest-environment node
import { expect, test } from "vitest";

import { buildTurn } from "../testing/builders";
import { stillPending } from "./pending";

test("an accepted message is shown until its turn arrives, and then once", () => {
  const pending = [{ key: "k", turnId: "turn_1", text: "Hello", filenames: [] }];

  expect(stillPending(pending, [])).toHaveLength(1);
  expect(stillPending(pending, [buildTurn({ turn_id: "turn_1" })])).toHaveLength(0);
});
