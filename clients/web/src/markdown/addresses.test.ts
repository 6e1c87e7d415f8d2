// @vitest-environment node
import { expect, test } from "vitest";

import { hostOf, normalizeAddress, readImage, readLink } from "./addresses";

test.each(["https://example.org/a", "http://example.org/", "mailto:a@example.org", " HTTPS://example.org/x "])(
  "%s is a link",
  (address) => {
    expect(readLink(address).kind).toBe("web");
  },
);

test.each([
  "javascript:alert(1)",
  "JaVaScRiPt:alert(1)",
  " javascript:alert(1)",
  "java\nscript:alert(1)",
  "data:text/html,<script>alert(1)</script>",
  "vbscript:x",
  "file:///etc/passwd",
  "blob:https://example.org/1",
  "//example.org/x",
  "\\\\example.org\\x",
  "/conversations/a/b",
  "#fragment",
  "https://",
  "",
])("%j is not a link", (address) => {
  expect(["none", "name"]).toContain(readLink(address).kind);
  expect(readLink(address).kind === "name" ? readLink(address) : "none").not.toHaveProperty("href");
});

test("a file of the conversation is recognized by its path", () => {
  expect(readLink("/files/default/default/art_1")).toEqual({ kind: "file", artifactId: "art_1" });
});

test("a plain name may name a file of the turn", () => {
  expect(readLink("outputs/my%20chart.png")).toEqual({ kind: "name", name: "my chart.png" });
});

test.each(["data:image/png;base64,iVBORw0KGgo=", "data:image/webp;base64,AAAA"])("%s is an image", (address) => {
  expect(readImage(address).kind).toBe("data");
});

test.each(["data:image/svg+xml;base64,AAAA", "data:image/png,<svg onload=alert(1)>", "data:text/html;base64,AAAA"])(
  "%s is none",
  (address) => {
    expect(readImage(address).kind).toBe("none");
  },
);

test("an image on the web is a link and is not fetched", () => {
  expect(readImage("https://tracker.example/pixel.png")).toEqual({ kind: "web", href: "https://tracker.example/pixel.png" });
});

test("addresses compare equal however they are encoded", () => {
  expect(normalizeAddress("https://example.org/a%20%28b%29")).toBe(normalizeAddress("https://example.org/a (b)"));
  expect(normalizeAddress("https://example.org")).toBe(normalizeAddress("https://example.org/"));
});

test("a host is shown without www", () => {
  expect(hostOf("https://www.example.org/path")).toBe("example.org");
  expect(hostOf("no address")).toBe("");
});
