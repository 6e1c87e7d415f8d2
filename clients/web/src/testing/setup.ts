/** What every test gets: the matchers of testing-library, and an empty page after it. */
import "@testing-library/jest-dom/vitest";
import { cleanup, configure } from "@testing-library/react";
import { afterEach } from "vitest";

afterEach(cleanup);
// A busy machine is no failure.
configure({ asyncUtilTimeout: 20_000 });

// jsdom has no media queries; here none matches.
window.matchMedia = (media: string): MediaQueryList =>
  Object.assign(new EventTarget(), { media, matches: false, onchange: null, addListener: () => undefined, removeListener: () => undefined });
