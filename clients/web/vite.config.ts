import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// The platform behind `npm run dev`. The page and the API share one origin, as they do behind the ingress.
const platform = process.env.EVERTURN_URL ?? "http://127.0.0.1:8080";
const api = ["/bundles", "/collections", "/conversations", "/embed/session", "/files", "/guests", "/limits", "/mcp-connections", "/memory", "/by-rn", "/artifact-frame", "/widgets", "/healthz", "/readyz"];
// Development mode accepts writes only from pages of its own origin.
const toPlatform = { target: platform, changeOrigin: true, headers: { origin: platform } };
const proxy = Object.fromEntries(api.map((path) => [path, toPlatform]));

export default defineConfig({
  base: "./",
  plugins: [react()],
  server: { proxy },
  build: {
    target: "es2022",
    sourcemap: false,
    modulePreload: { polyfill: false },
    // Licences of the bundled packages. The ingress serves them; see docs/third-party.md.
    license: { fileName: "assets/licenses.txt" },
  },
  test: {
    environment: "jsdom",
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["src/testing/setup.ts"],
    restoreMocks: true,
    unstubGlobals: true,
    // Separate pages for each file took three quarters of the time. `restoreMocks` and the setup undo what a test changes.
    isolate: false,
    // Generous, because the machine may be busy.
    testTimeout: 60_000,
  },
});
