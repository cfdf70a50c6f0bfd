package e2e

import (
	"path/filepath"
	"testing"
)

// TestTypeScript compiles Brig's TypeScript package, and tests its features that E2B's SDK lacks.
//
//suite:part clients full
func TestTypeScript(t *testing.T) {
	needVolumes(t)
	s := startE2B(t)
	built := npm(t, "../sdk/typescript")
	output(t, "node", filepath.Join(built, "node_modules", "typescript", "bin", "tsc"), "-p", built)
	s.checks(t, 15, "typescript.mjs", "BRIG_URL="+s.url, "BRIG_API_KEY="+s.server.key, "BRIG_TYPESCRIPT="+filepath.Join(built, "dist", "index.js"))
}
