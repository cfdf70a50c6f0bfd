import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The page is served below /console/, by a server whose policy lets nothing in
// that is inline.
export default defineConfig({
  base: "/console/",
  plugins: [react()],
  // Archives and packages contain the licenses of the bundled packages.
  build: { license: { fileName: "licenses.md" }, outDir: "dist", emptyOutDir: true, assetsInlineLimit: 0, modulePreload: { polyfill: false }, chunkSizeWarningLimit: 700 },
  server: { proxy: { "/v1": "http://127.0.0.1:2744" } },
});
