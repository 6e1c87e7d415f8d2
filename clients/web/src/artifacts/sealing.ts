/**
 * Makes a page of the agent safe to run in a sandboxed frame: a policy that forbids network access comes before all its
 * content.
 */

/** A page of the ingress that receives a text and becomes that page; its policy forbids network access too. */
export const FRAME_ADDRESS = "./artifact-frame";
/** The message that it posts when it is ready. */
export const FRAME_GREETING = "artifact-frame";

/**
 * No address is fetched: a page must contain all it needs. Navigation is blocked by the policy of the surrounding page
 * and by the frame’s `Connection-Allowlist`.
 */
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
 * would have them again. A policy can't help there: `frame-src` does not apply to a frame made of a text (`srcdoc`), which
 * inherits this policy, and with it the permission to run scripts.
 *
 * The page can replace every global and every method afterwards. So nothing is looked up later: methods are taken here and
 * called with `apply`, and option objects have no prototype. Strict mode hides these functions from `caller` and from stacks.
 *
 * A frame loads in a task of its own, so it is early enough to look for it in the microtask that follows each change. Every
 * tree is watched: the document, and each shadow root from the microtask after it was made. That microtask is queued before
 * the root exists, so that running out of stack can't leave a root that is not watched. Cloning makes no roots, and what
 * parses text with shadow roots is taken out.
 */
const PRELUDE = `(() => {
  "use strict";
  const { apply, deleteProperty } = Reflect;
  const { observe } = MutationObserver.prototype;
  const { remove, attachShadow } = Element.prototype;
  const findInDocument = Document.prototype.querySelector;
  const findInShadow = DocumentFragment.prototype.querySelector;
  const Observer = MutationObserver;
  const later = queueMicrotask;
  const changes = { __proto__: null, childList: true, subtree: true };

  const watch = (root, find) => {
    const sweep = () => {
      let frame;
      while ((frame = apply(find, root, ["iframe, frame, object, embed, fencedframe"])) !== null) apply(remove, frame, []);
    };
    apply(observe, new Observer(sweep), [root, changes]);
    sweep();
  };
  watch(document, findInDocument);

  Element.prototype.attachShadow = function (options) {
    let root = null;
    apply(later, undefined, [() => { if (root !== null) watch(root, findInShadow); }]);
    root = apply(attachShadow, this, [{ __proto__: null, ...options, clonable: false }]);
    return root;
  };

  for (const name of Object.getOwnPropertyNames(window)) if (/^(webkit)?RTC/.test(name)) deleteProperty(window, name);
  const kept = /^(inner|outer|get|insertAdjacent)HTML$/;
  for (const owner of [Element.prototype, ShadowRoot.prototype, Document.prototype, Document]) {
    for (const name of Object.getOwnPropertyNames(owner)) {
      if (/^(open|write|writeln)$|HTML(Unsafe)?$/.test(name) && !kept.test(name)) deleteProperty(owner, name);
    }
  }
})()`;

/** The policy comes first: nothing of the page may precede it, not even its doctype, which is written again. */
export function sealHtml(html: string): string {
  const withoutDoctype = html.replace(/^\s*<!doctype[^>]*>/i, "").replace(/shadowrootmode/gi, "data-mode");
  return [
    '<!doctype html><meta charset="utf-8">',
    `<meta http-equiv="Content-Security-Policy" content="${FRAME_POLICY}"><meta name="referrer" content="no-referrer">`,
    `<script>${PRELUDE}</script>`,
    withoutDoctype,
  ].join("");
}
