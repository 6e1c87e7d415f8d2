/** Setup of every test file: the matchers of testing-library, and an empty page after each test. */
import "@testing-library/jest-dom/vitest";
import { cleanup, configure } from "@testing-library/react";
import { afterEach } from "vitest";

afterEach(cleanup);
// Generous, because the machine may be busy.
configure({ asyncUtilTimeout: 20_000 });

function matchNothing(media: string): MediaQueryList {
  return Object.assign(new EventTarget(), { media, matches: false, onchange: null, addListener: () => undefined, removeListener: () => undefined });
}

// jsdom has neither media queries nor CSS.supports; here nothing matches. Tests in the node environment have no window.
if ("window" in globalThis) {
  window.matchMedia = matchNothing;
  Object.assign(CSS, { supports: () => false });
}
