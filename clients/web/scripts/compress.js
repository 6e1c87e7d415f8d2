// Compresses the build output, so that the server does not have to: `node scripts/compress.js FOLDER`.
import { readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const TEXTS = /\.(css|html|js|json|svg|txt|wasm)$/;
/** Smaller files fit into one packet; compressing them gains nothing. */
const MIN_BYTES = 1024;
const folder = process.argv[2] ?? "dist";

for (const name of readdirSync(folder, { recursive: true })) {
  const path = join(folder, String(name));
  if (!TEXTS.test(path) || !statSync(path).isFile()) continue;
  const content = readFileSync(path);
  if (content.length < MIN_BYTES) continue;
  const coded = {
    br: brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: content.length } }),
    gz: gzipSync(content, { level: 9 }),
  };
  for (const [end, bytes] of Object.entries(coded)) {
    if (bytes.length < content.length) writeFileSync(`${path}.${end}`, bytes);
  }
}
