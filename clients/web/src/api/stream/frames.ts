// When what came is shown: once in each frame that the browser draws.

export interface Frames {
  /** Calls once, before the next frame. Returns how to take it back. */
  request(draw: () => void): () => void;
}

/** Pages that nobody looks at draw no frames. */
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
