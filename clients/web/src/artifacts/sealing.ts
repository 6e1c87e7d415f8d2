/** Makes a page of the agent safe to run in a sandboxed frame: before anything of it is read, a policy forbids the network. */

/** A page of ingress that takes one text and becomes it; its policy forbids the network too. */
export const FRAME_ADDRESS = "./artifact-frame";
/** What it says when it is there. */
export const FRAME_GREETING = "artifact-frame";

/** No address is fetched: what the page needs is in it. Navigation is closed by the policy of the page around, and by the frame’s `Connection-Allowlist`. */
export const FRAME_POLICY = [
  "default-src 'none'",
  "script-src 'unsafe-inline'",
  "style-src 'unsafe-inline'",
  "img-src data: blob:",
  "media-src data: blob:",
  "font-src data:",
  "connect-src 'none'",
  "frame-src 'none'",
  "form-action 'none'",
  "base-uri 'none'",
].join("; ");

/**
 * Runs before all else. No policy forbids connections between peers, so they are taken out; and no frame stays, since it
 * would have them again. A tree that nobody can look into (a closed one from the parser) can't be made either.
 */
const PRELUDE = `(() => {
  for (const name of Object.getOwnPropertyNames(window)) if (/^(webkit)?RTC/.test(name)) delete window[name];
  delete Document.prototype.write;
  delete Document.prototype.writeln;
  delete Document.parseHTMLUnsafe;
  delete Element.prototype.setHTMLUnsafe;
  delete ShadowRoot.prototype.setHTMLUnsafe;
  const Watch = MutationObserver;
  const watch = (root) => {
    const sweep = () => { for (const frame of root.querySelectorAll("iframe, frame, object, embed")) frame.remove(); };
    new Watch(sweep).observe(root, { childList: true, subtree: true });
  };
  const attach = Element.prototype.attachShadow;
  Element.prototype.attachShadow = function attachShadow(options) {
    const root = attach.call(this, options);
    watch(root);
    return root;
  };
  watch(document);
})()`;

/** The policy stands first: nothing of the page comes before it, not even its doctype, which is given anew. */
export function sealHtml(html: string): string {
  const withoutDoctype = html.replace(/^\s*<!doctype[^>]*>/i, "").replace(/shadowrootmode/gi, "data-mode");
  return [
    '<!doctype html><meta charset="utf-8">',
    `<meta http-equiv="Content-Security-Policy" content="${FRAME_POLICY}"><meta name="referrer" content="no-referrer">`,
    `<script>${PRELUDE}</script>`,
    withoutDoctype,
  ].join("");
}
