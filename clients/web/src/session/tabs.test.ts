// @vitest-environment node
import { expect, test } from "vitest";

import { hearTabs, tellTabs } from "./tabs";
import type { TabNews } from "./tabs";

test("what one tab tells, another one hears until it stops listening", async () => {
  let stop = (): void => undefined;
  const heard = await new Promise<TabNews>((resolve) => {
    stop = hearTabs(resolve);
    tellTabs({ kind: "judged", conversationId: "conv_1", turnId: "turn_1" });
  });
  stop();

  expect(heard).toEqual({ kind: "judged", conversationId: "conv_1", turnId: "turn_1" });
});
