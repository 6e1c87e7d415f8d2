/** The kind of a file, which decides how it is shown. */

export type FileKind = "image" | "table" | "markdown" | "html" | "json" | "code" | "text" | "other";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const LANGUAGES: ReadonlyMap<string, string> = new Map([
  ["py", "python"],
  ["js", "javascript"],
  ["ts", "typescript"],
  ["tsx", "typescript"],
  ["jsx", "javascript"],
  ["sh", "bash"],
  ["rs", "rust"],
  ["go", "go"],
  ["java", "java"],
  ["c", "c"],
  ["h", "c"],
  ["cpp", "cpp"],
  ["cs", "csharp"],
  ["rb", "ruby"],
  ["php", "php"],
  ["sql", "sql"],
  ["css", "css"],
  ["xml", "xml"],
  ["html", "xml"],
  ["htm", "xml"],
  ["yaml", "yaml"],
  ["yml", "yaml"],
  ["toml", "ini"],
  ["ini", "ini"],
  ["diff", "diff"],
  ["r", "r"],
  ["kt", "kotlin"],
  ["swift", "swift"],
]);

/**
 * Images, and pages that are shown as images, only count as such by the type that the server reports; all others also by
 * their names. The server reports attached HTML and SVG as plain text: their source is shown, and nothing in them runs.
 */
export function kindOf(type: string, filename: string): FileKind {
  const ending = endingOf(filename);
  const mime = baseOf(type);
  if (IMAGES.has(mime)) return "image";
  if (mime === "text/csv" || mime === "text/tab-separated-values" || ending === "csv" || ending === "tsv") return "table";
  if (mime === "text/markdown" || ending === "md" || ending === "markdown") return "markdown";
  if (mime === "text/html") return "html";
  if (mime === "application/json" || ending === "json") return "json";
  if (LANGUAGES.has(ending)) return "code";
  return mime.startsWith("text/") ? "text" : "other";
}

/** The language for syntax highlighting; empty if unknown. */
export function languageOf(filename: string): string {
  const ending = endingOf(filename);
  return ending === "json" ? "json" : (LANGUAGES.get(ending) ?? "");
}

/** The charset of a media type such as `text/csv; charset=windows-1252`; UTF-8 by default. */
export function charsetOf(type: string): string {
  return /;\s*charset="?([\w-]+)/i.exec(type)?.[1]?.toLowerCase() ?? "utf-8";
}

/** The text of a file; a charset that this browser does not know is read as UTF-8. */
export async function decodeText(content: Pick<Blob, "arrayBuffer">, type: string): Promise<string> {
  return openDecoder(charsetOf(type)).decode(await content.arrayBuffer());
}

function openDecoder(charset: string): TextDecoder {
  try {
    return new TextDecoder(charset);
  } catch {
    // TextDecoder throws only for an unknown label.
    return new TextDecoder();
  }
}

function baseOf(type: string): string {
  return type.replace(/;.*$/, "").trim().toLowerCase();
}

function endingOf(filename: string): string {
  const dot = filename.lastIndexOf(".");
  return dot < 0 ? "" : filename.slice(dot + 1).toLowerCase();
}
