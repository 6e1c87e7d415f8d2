// What the browser says of the network and of whether anybody looks.

export interface Network {
  isOnline(): boolean;
  /** Calls when the network is back or the page is looked at again. Returns how to stop that. */
  onReturn(listener: () => void): () => void;
  /** Whether anybody can see this tab. */
  isLookedAt(): boolean;
  /** Calls when that changes. Returns how to stop that. */
  onLook(listener: () => void): () => void;
}

export const browserNetwork: Network = {
  isOnline: () => navigator.onLine,
  onReturn: (listener) => {
    const look = () => {
      if (document.visibilityState === "visible") listener();
    };
    window.addEventListener("online", listener);
    document.addEventListener("visibilitychange", look);
    return () => {
      window.removeEventListener("online", listener);
      document.removeEventListener("visibilitychange", look);
    };
  },
  isLookedAt: () => document.visibilityState === "visible",
  onLook: (listener) => {
    document.addEventListener("visibilitychange", listener);
    return () => { document.removeEventListener("visibilitychange", listener); };
  },
};
