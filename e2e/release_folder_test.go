package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// releaseFolder returns the directory of the release that `make release` built last.
func releaseFolder(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(filepath.Dir(bin(t, "brig")), "release")
	if _, err := os.Stat(filepath.Join(dir, "SHA256SUMS")); err != nil {
		t.Skip("no bin/release (make release builds it)")
	}
	return dir
}

// TestReleaseFolderIsComplete verifies that a release is complete, with correct
// checksums, and that all its files have the same version.
//
//suite:part install full
func TestReleaseFolderIsComplete(t *testing.T) {
	dir := releaseFolder(t)
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(madeOf(t, dir, "brig_*_oci.tar")), "brig_"), "_oci.tar")
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	// Debian, RPM and Python packages have their own formats for pre-release
	// versions, and npm omits the part after the plus sign.
	number := regexp.QuoteMeta(regexp.MustCompile(`^[0-9.]+`).FindString(version))
	exact := regexp.QuoteMeta(version)
	for _, pattern := range []string{
		`brig_` + exact + `_linux_amd64\.tar\.gz`, `brig_` + exact + `_linux_arm64\.tar\.gz`,
		`brig_` + exact + `_linux_amd64\.cdx\.json`, `brig_` + exact + `_linux_arm64\.cdx\.json`,
		`brig_` + number + `.*_amd64\.deb`, `brig_` + number + `.*_arm64\.deb`,
		`brig-` + number + `.*\.x86_64\.rpm`, `brig-` + number + `.*\.aarch64\.rpm`,
		`brig-` + number + `.*-py3-none-any\.whl`, `brig-` + number + `.*\.tar\.gz`, `brig-` + number + `.*\.tgz`,
		`brig_` + exact + `_oci\.tar`, `install\.sh`,
	} {
		if !regexp.MustCompile(`(?m)^[0-9a-f]{64}  ` + pattern + `$`).Match(sums) {
			t.Errorf("SHA256SUMS has no %s:\n%s", pattern, sums)
		}
	}
	script, err := os.ReadFile(filepath.Join(dir, "install.sh"))
	if err != nil || !strings.Contains(string(script), "${BRIG_VERSION:-"+version+"}") {
		t.Errorf("install.sh has another version: %v", err)
	}
	packageLayout(t, dir)
}
