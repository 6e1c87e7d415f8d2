/** What the tabs of this browser tell each other; the stream tells them the rest. */

export type TabNews = { kind: "conversations" } | { kind: "judged"; conversationId: string; turnId: string };

const NAME = "everturn";

/** Tell the other tabs. */
export function tellTabs(news: TabNews): void {
  const channel = new BroadcastChannel(NAME);
  channel.postMessage(news);
  channel.close();
}

/** Hear of the other tabs; returns how to stop it. */
export function hearTabs(listener: (news: TabNews) => void): () => void {
  const channel = new BroadcastChannel(NAME);
  channel.onmessage = (event: MessageEvent<TabNews>) => { listener(event.data); };
  return () => { channel.close(); };
}
