// Network status and tab visibility, as the browser reports them.

export interface Network {
  isOnline(): boolean;
  /** Calls the listener when the network is back or the page becomes visible. Returns a function that unsubscribes. */
  onReturn(listener: () => void): () => void;
  /** Whether this tab is visible. */
  isVisible(): boolean;
  /** Calls the listener when that changes. Returns a function that unsubscribes. */
  onVisibilityChange(listener: () => void): () => void;
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
  isVisible: () => document.visibilityState === "visible",
  onVisibilityChange: (listener) => {
    document.addEventListener("visibilitychange", listener);
    return () => { document.removeEventListener("visibilitychange", listener); };
  },
};
