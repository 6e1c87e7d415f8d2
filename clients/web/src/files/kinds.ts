/** What sort of thing a file is, which decides how it is shown. */

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
 * An image, or a page that is shown as one, only by its type as the server gave it; everything else also by its name.
 * Pages and drawings that a person attached are plain text for the server: their source is shown, and nothing in them runs.
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

/** The name of the language for colours; empty when it is none that we know. */
export function languageOf(filename: string): string {
  const ending = endingOf(filename);
  return ending === "json" ? "json" : (LANGUAGES.get(ending) ?? "");
}

/** The encoding that a type names, as in `text/csv; charset=windows-1252`; UTF-8 when it names none. */
export function charsetOf(type: string): string {
  return /;\s*charset="?([\w-]+)/i.exec(type)?.[1]?.toLowerCase() ?? "utf-8";
}

/** The text of a file in its encoding; one that this browser does not know is read as UTF-8. */
export async function decodeText(content: Pick<Blob, "arrayBuffer">, type: string): Promise<string> {
  return openDecoder(charsetOf(type)).decode(await content.arrayBuffer());
}

function openDecoder(charset: string): TextDecoder {
  try {
    return new TextDecoder(charset);
  } catch {
    // It throws for nothing but an unknown name.
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
