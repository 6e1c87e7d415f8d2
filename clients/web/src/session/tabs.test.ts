// @vitest-environment node
import { expect, test, vi } from "vitest";

import * as tabs from "./tabs";
import type { TabMessage } from "./tabs";

const RATED: TabMessage = { kind: "rated", conversationId: "conv_1", turnId: "turn_1" };

/** Another tab has its own copy of the module. */
async function openTab(): Promise<Pick<typeof tabs, "notifyTabs">> {
  vi.resetModules();
  return import("./tabs");
}

test("a tab receives the messages of other tabs until it unsubscribes", async () => {
  const other = await openTab();
  let stop = (): void => undefined;
  const heard = await new Promise<TabMessage>((resolve) => {
    stop = tabs.onTabMessage(resolve);
    other.notifyTabs(RATED);
  });
  stop();

  expect(heard).toEqual(RATED);
});

test("a tab does not receive its own messages, which would double its requests", async () => {
  const other = await openTab();
  const heard: TabMessage[] = [];
  const last = new Promise<void>((resolve) => {
    const stop = tabs.onTabMessage((message) => {
      heard.push(message);
      stop();
      resolve();
    });
  });

  tabs.notifyTabs({ kind: "conversations" });
  other.notifyTabs(RATED);
  await last;

  expect(heard).toEqual([RATED]);
});
