/** What every test gets: the matchers of testing-library, and an empty page after it. */
import "@testing-library/jest-dom/vitest";
import { cleanup, configure } from "@testing-library/react";
import { afterEach } from "vitest";

afterEach(cleanup);
// A busy machine is no failure.
configure({ asyncUtilTimeout: 20_000 });

function matchNothing(media: string): MediaQueryList {
  return Object.assign(new EventTarget(), { media, matches: false, onchange: null, addListener: () => undefined, removeListener: () => undefined });
}

// jsdom has no media queries and knows of no property; here none matches. Tests of what needs no page run without a window.
if ("window" in globalThis) {
  window.matchMedia = matchNothing;
  Object.assign(CSS, { supports: () => false });
}
