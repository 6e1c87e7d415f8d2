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
  ["yaml", "yaml"],
  ["yml", "yaml"],
  ["toml", "ini"],
  ["ini", "ini"],
  ["diff", "diff"],
  ["r", "r"],
  ["kt", "kotlin"],
  ["swift", "swift"],
]);

/** An image only by its type, as the server told it; everything else also by its name. */
export function kindOf(mime: string, filename: string): FileKind {
  const ending = endingOf(filename);
  if (IMAGES.has(mime)) return "image";
  if (mime === "text/csv" || mime === "text/tab-separated-values" || ending === "csv" || ending === "tsv") return "table";
  if (mime === "text/markdown" || ending === "md" || ending === "markdown") return "markdown";
  if (mime === "text/html" || ending === "html" || ending === "htm") return "html";
  if (mime === "application/json" || ending === "json") return "json";
  if (LANGUAGES.has(ending)) return "code";
  return mime.startsWith("text/") ? "text" : "other";
}

/** The name of the language for colours; empty when it is none that we know. */
export function languageOf(filename: string): string {
  const ending = endingOf(filename);
  return ending === "json" ? "json" : (LANGUAGES.get(ending) ?? "");
}

function endingOf(filename: string): string {
  const dot = filename.lastIndexOf(".");
  return dot < 0 ? "" : filename.slice(dot + 1).toLowerCase();
}
