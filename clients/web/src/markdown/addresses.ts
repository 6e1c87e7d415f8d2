/** Which addresses of an answer the page uses, and for what. Everything else is shown as text. */

const WEB = /^(?:https?|mailto):/i;
const OWN_FILE = /^\/files\/[^/?#]+\/[^/?#]+\/([^/?#]+)$/;
const DATA_IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/i;
const MAX_DATA_CHARS = 3_000_000;

export type LinkTarget = { kind: "web"; href: string } | { kind: "file"; artifactId: string } | { kind: "name"; name: string } | { kind: "none" };

/** What a link may lead to: the web or mail, a file of ours, or maybe a file that the turn made by its name. */
export function readLink(address: string | undefined): LinkTarget {
  const text = (address ?? "").trim();
  if (WEB.test(text)) {
    const url = tryUrl(text);
    return url === null ? { kind: "none" } : { kind: "web", href: url.href };
  }
  const own = OWN_FILE.exec(text);
  if (own?.[1] !== undefined) return { kind: "file", artifactId: decode(own[1]) };
  // Neither a scheme nor another host: at most the name of a file.
  if (text === "" || /^[a-z][a-z0-9+.-]*:|^[/\\#]/i.test(text)) return { kind: "none" };
  return { kind: "name", name: decode(text.replace(/[?#].*$/s, "")).replace(/^.*\//s, "") };
}

export type ImageSource = { kind: "data"; src: string } | Exclude<LinkTarget, { kind: "none" }> | { kind: "none" };

/** Where an image may come from: itself, or a file of ours. One of the web is only ever a link. */
export function readImage(address: string | undefined): ImageSource {
  const text = (address ?? "").trim();
  if (text.length <= MAX_DATA_CHARS && DATA_IMAGE.test(text)) return { kind: "data", src: text };
  return readLink(text);
}

/** The same address for two ways of writing it. */
export function normalizeAddress(address: string): string {
  const url = tryUrl(address);
  return url === null ? address : decode(url.href);
}

/** The host that an address leads to, as a person reads it. */
export function hostOf(address: string): string {
  const url = tryUrl(address);
  return url === null ? "" : url.host.replace(/^www\./, "");
}

function tryUrl(address: string): URL | null {
  return URL.canParse(address) ? new URL(address) : null;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    // Not percent-encoded as it should be; then it stands for itself.
    return text;
  }
}
