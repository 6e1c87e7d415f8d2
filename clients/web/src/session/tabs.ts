/** What the tabs of this browser tell each other; the stream tells them the rest. */

export type TabNews = { kind: "conversations" } | { kind: "judged"; conversationId: string; turnId: string };

interface Told {
  readonly by: number;
  readonly news: TabNews;
}

const NAME = "everturn";
/** This tab, among those of one browser. */
const ME = Math.random();

/** Tell the other tabs. */
export function tellTabs(news: TabNews): void {
  const channel = new BroadcastChannel(NAME);
  channel.postMessage({ by: ME, news } satisfies Told);
  channel.close();
}

/** Hear of the other tabs, and not of this one; returns how to stop it. */
export function hearTabs(listener: (news: TabNews) => void): () => void {
  const channel = new BroadcastChannel(NAME);
  channel.onmessage = ({ data }: MessageEvent<Told>) => {
    if (data.by !== ME) listener(data.news);
  };
  return () => { channel.close(); };
}
