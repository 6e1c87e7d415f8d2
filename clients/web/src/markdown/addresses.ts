/** Decides which addresses of an answer become links and images. All others are shown as text. */

const WEB = /^(?:https?|mailto):/i;
const OWN_FILE = /^\/files\/[^/?#]+\/[^/?#]+\/([^/?#]+)$/;
const DATA_IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/i;
const MAX_DATA_CHARS = 3_000_000;

export type LinkTarget = { kind: "web"; href: string } | { kind: "file"; artifactId: string } | { kind: "name"; name: string } | { kind: "none" };

/** The target of a link: the web or mail, a stored file, or possibly the name of a file of the turn. */
export function readLink(address: string | undefined): LinkTarget {
  const text = (address ?? "").trim();
  if (WEB.test(text)) {
    const url = tryUrl(text);
    return url === null ? { kind: "none" } : { kind: "web", href: url.href };
  }
  const own = OWN_FILE.exec(text);
  if (own?.[1] !== undefined) return { kind: "file", artifactId: decode(own[1]) };
  // Neither a scheme nor a host: at most the name of a file.
  if (text === "" || /^[a-z][a-z0-9+.-]*:|^[/\\#]/i.test(text)) return { kind: "none" };
  return { kind: "name", name: decode(text.replace(/[?#].*$/s, "")).replace(/^.*\//s, "") };
}

export type ImageSource = { kind: "data"; src: string } | Exclude<LinkTarget, { kind: "none" }> | { kind: "none" };

/** The source of an image: a data URL or a stored file. An image on the web only ever becomes a link. */
export function readImage(address: string | undefined): ImageSource {
  const text = (address ?? "").trim();
  if (text.length <= MAX_DATA_CHARS && DATA_IMAGE.test(text)) return { kind: "data", src: text };
  return readLink(text);
}

/** The same result for two encodings of one address. */
export function normalizeAddress(address: string): string {
  const url = tryUrl(address);
  return url === null ? address : decode(url.href);
}

/** The host of an address, as shown to the user. */
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
    // Invalid percent-encoding: use the text itself.
    return text;
  }
}
