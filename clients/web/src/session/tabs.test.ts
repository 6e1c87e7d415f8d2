// @vitest-environment node
import { expect, test, vi } from "vitest";

import * as tabs from "./tabs";
import type { TabNews } from "./tabs";

const JUDGED: TabNews = { kind: "judged", conversationId: "conv_1", turnId: "turn_1" };

/** Another tab has its own copy of the module. */
async function openTab(): Promise<Pick<typeof tabs, "tellTabs">> {
  vi.resetModules();
  return import("./tabs");
}

test("what one tab tells, another one hears until it stops listening", async () => {
  const other = await openTab();
  let stop = (): void => undefined;
  const heard = await new Promise<TabNews>((resolve) => {
    stop = tabs.hearTabs(resolve);
    other.tellTabs(JUDGED);
  });
  stop();

  expect(heard).toEqual(JUDGED);
});

test("a tab does not hear itself, which would ask the server twice", async () => {
  const other = await openTab();
  const heard: TabNews[] = [];
  const last = new Promise<void>((resolve) => {
    const stop = tabs.hearTabs((news) => {
      heard.push(news);
      stop();
      resolve();
    });
  });

  tabs.tellTabs({ kind: "conversations" });
  other.tellTabs(JUDGED);
  await last;

  expect(heard).toEqual([JUDGED]);
});
