// Batches updates: one for each animation frame of the browser.

export interface Frames {
  /** Calls `draw` once, before the next frame. Returns a function that cancels it. */
  request(draw: () => void): () => void;
}

/** Hidden pages draw no frames. */
const HIDDEN_MS = 250;

export const browserFrames: Frames = {
  request: (draw) => {
    if (document.visibilityState === "visible") {
      const frame = requestAnimationFrame(draw);
      return () => { cancelAnimationFrame(frame); };
    }
    const timer = setTimeout(draw, HIDDEN_MS);
    return () => { clearTimeout(timer); };
  },
};
