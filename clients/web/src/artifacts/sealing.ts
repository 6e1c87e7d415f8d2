/** Makes a page of the agent safe to run in a sandboxed frame: before anything of it is read, a policy forbids the network. */

/** A page of ingress that takes one text and becomes it; its policy forbids the network too. */
export const FRAME_ADDRESS = "./artifact-frame";
/** What it says when it is there. */
export const FRAME_GREETING = "artifact-frame";

/** No address is fetched; what the page needs is in it. Navigation is closed by the frame's sandbox and by the policy. */
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

/** The policy stands first: nothing of the page comes before it, not even its doctype, which is given anew. */
export function sealHtml(html: string): string {
  const withoutDoctype = html.replace(/^\s*<!doctype[^>]*>/i, "");
  return `<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="${FRAME_POLICY}"><meta name="referrer" content="no-referrer">${withoutDoctype}`;
}
