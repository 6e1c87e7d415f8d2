import { expect, test } from "vitest";

import { sealHtml } from "./sealing";

const policyOf = (html: string): Element | null => new DOMParser().parseFromString(sealHtml(html), "text/html").querySelector("meta[http-equiv]");

test.each(["<p>Hello</p>", "<!DOCTYPE html><html><head><title>x</title></head><body></body></html>", "<!-- <html> --><script>1</script>", "--><plaintext>"])(
  "the policy of a sealed page is in its head, before anything of the page: %s",
  (html) => {
    const policy = policyOf(html);

    expect(policy?.parentElement?.tagName).toBe("HEAD");
    expect(policy?.getAttribute("content")).toContain("default-src 'none'");
    expect(sealHtml(html).indexOf("Content-Security-Policy")).toBeLessThan(sealHtml(html).indexOf(html.replace(/^<!DOCTYPE html>/, "")));
  },
);

test("a sealed page loses attributes that create closed shadow roots", () => {
  const sealed = new DOMParser().parseFromString(sealHtml('<div><template ShadowRootMode="closed"><iframe></iframe></template></div>'), "text/html");

  expect(sealed.querySelector("template")?.getAttributeNames()).toEqual(["data-mode"]);
  expect(sealed.head.querySelector("script")?.textContent).toContain("RTC");
});

test("the policy allows no address to be fetched", () => {
  expect(policyOf("")?.getAttribute("content")).not.toMatch(/https?:|\*|'self'/);
});
