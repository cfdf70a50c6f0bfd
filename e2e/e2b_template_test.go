package e2e

import (
	"testing"
)

// TestE2BTemplatesPython builds templates with E2B's Python SDK, and creates sandboxes from them.
//
//suite:part clients full
func TestE2BTemplatesPython(t *testing.T) {
	startE2B(t).pythonChecks(t, 7, "template.py", "CONTEXT="+t.TempDir())
}

// TestE2BTemplates builds templates with the newest and an older version of E2B's JavaScript SDK.
//
//suite:part clients full
func TestE2BTemplates(t *testing.T) {
	for _, module := range []string{"e2b", "e2b-older"} {
		t.Run(module, func(t *testing.T) { startE2B(t).checks(t, 4, "template.mjs", "E2B_MODULE="+module) })
	}
}

// TestE2BVolumes uses volumes with the newest and an older version of E2B's JavaScript SDK.
//
//suite:part clients full
func TestE2BVolumes(t *testing.T) {
	needVolumes(t)
	for _, module := range []string{"e2b", "e2b-older"} {
		t.Run(module, func(t *testing.T) { startE2B(t).checks(t, 5, "volume.mjs", "E2B_MODULE="+module) })
	}
}
