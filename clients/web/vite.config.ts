import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// The platform that `npm run dev` talks to. Its page and its API have one origin, as behind ingress.
const platform = process.env["EVERTURN_URL"] ?? "http://127.0.0.1:8080";
const api = ["/conversations", "/files", "/guests", "/memory", "/by-rn", "/healthz", "/readyz"];

export default defineConfig({
  base: "./",
  plugins: [react()],
  server: { proxy: Object.fromEntries(api.map((path) => [path, { target: platform, changeOrigin: true }])) },
  build: { target: "es2022", sourcemap: false, modulePreload: { polyfill: false } },
  test: {
    environment: "jsdom",
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["src/testing/setup.ts"],
    restoreMocks: true,
  },
});
