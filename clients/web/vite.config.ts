import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// The platform that `npm run dev` talks to. Its page and its API have one origin, as behind ingress.
const platform = process.env.EVERTURN_URL ?? "http://127.0.0.1:8080";
const api = ["/conversations", "/files", "/guests", "/limits", "/memory", "/by-rn", "/artifact-frame", "/healthz", "/readyz"];
// Development mode takes writes from a page of its own origin only.
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
    // The licences of all that is bundled go with the page: the ingress serves them, docs/third-party.md says where.
    license: { fileName: "assets/licenses.txt" },
  },
  test: {
    environment: "jsdom",
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["src/testing/setup.ts"],
    restoreMocks: true,
    unstubGlobals: true,
    // A page of its own for each file takes three quarters of the time; what a test changes, `restoreMocks` and the setup undo.
    isolate: false,
    // A busy machine is no failure.
    testTimeout: 60_000,
  },
});
