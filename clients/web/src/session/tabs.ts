/** Messages between the tabs of this browser, for changes that the stream does not report. */

export type TabMessage = { kind: "conversations" } | { kind: "rated"; conversationId: string; turnId: string };

interface Envelope {
  readonly sender: number;
  readonly message: TabMessage;
}

const CHANNEL = "everturn";
/** Identifies this tab among those of the browser. */
const TAB_ID = Math.random();

/** Send a message to the other tabs. */
export function notifyTabs(message: TabMessage): void {
  const channel = new BroadcastChannel(CHANNEL);
  channel.postMessage({ sender: TAB_ID, message } satisfies Envelope);
  channel.close();
}

/** Subscribe to messages of the other tabs; returns a function that unsubscribes. */
export function onTabMessage(listener: (message: TabMessage) => void): () => void {
  const channel = new BroadcastChannel(CHANNEL);
  channel.onmessage = ({ data }: MessageEvent<Envelope>) => {
    if (data.sender !== TAB_ID) listener(data.message);
  };
  return () => { channel.close(); };
}
