package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestQuickstartUnitMatchesPackage checks that the unit of quickstart differs from the packaged
// unit only in the command and the writable path, which are quoted for systemd.
func TestQuickstartUnitMatchesPackage(t *testing.T) {
	unit := unitFor("/opt/my brig/brig", "/srv/50%/$x", "", "127.0.0.1:1")
	want := `ExecStart="/opt/my brig/brig" serve --data-dir /srv/50%%/$$x --listen 127.0.0.1:1` + "\n" + `ReadWritePaths=/srv/50%%/$x` + "\n"
	if !strings.Contains(unit, want) || strings.Count(unit, "ExecStart=") != 1 {
		t.Errorf("the unit has no %q: %s", want, unit)
	}
	if rest := strings.Replace(unit, want, "", 1); rest != strings.Replace(packagedUnit, execStart.FindString(packagedUnit)+"\n", "", 1) {
		t.Errorf("the rest of the unit differs: %s", rest)
	}
	if unit := unitFor("/usr/bin/brig", "/var/lib/brig", "/etc/brig/brig.yaml", ""); !strings.Contains(unit, "serve --data-dir /var/lib/brig --config /etc/brig/brig.yaml\n") {
		t.Errorf("%s", unit)
	}
}

// TestOnlyRootReplaces checks that a program is rejected for a unit if another user can replace it.
func TestOnlyRootReplaces(t *testing.T) {
	for _, c := range []struct {
		name         string
		file, folder os.FileMode
		want         string
	}{
		{"a program of the owner", 0o755, 0o755, ""}, // the control
		{"in a sticky directory", 0o755, 0o777 | os.ModeSticky, ""},
		{"writable by the group", 0o775, 0o755, "brig is writable by other users (mode 0775)"},
		{"writable by all", 0o757, 0o755, "brig is writable by other users (mode 0757)"},
		{"writable by all in a sticky directory", 0o757, 0o777 | os.ModeSticky, "brig is writable by other users"},
		{"in a directory of the group", 0o755, 0o775, "opt, which is writable by other users (mode 0775)"},
		{"in a directory of all", 0o755, 0o777, "opt, which is writable by other users (mode 0777)"},
	} {
		top, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(top, "opt")
		real, link := filepath.Join(folder, "bin", "brig"), filepath.Join(top, "link")
		if err := errors.Join(os.MkdirAll(filepath.Dir(real), 0o755), os.WriteFile(real, nil, 0o600), os.Chmod(real, c.file),
			os.Chmod(folder, c.folder), os.Symlink(real, link)); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{real, link} {
			got, err := checkOnlyRootReplaces("the program", file, os.Geteuid())
			if c.want == "" && (err != nil || got != real) {
				t.Errorf("%s: %q, %v", c.name, got, err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
		}
		// Another user, who is not root, owns a part of the path.
		if _, err := checkOnlyRootReplaces("the program", real, os.Geteuid()+1); os.Geteuid() != 0 && err == nil {
			t.Errorf("%s: accepted for another user", c.name)
		}
	}
	if os.Geteuid() == 0 {
		file := filepath.Join(t.TempDir(), "brig")
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chown(file, 12345, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := checkOnlyRootReplaces("the program", file, 0); err == nil || !strings.Contains(err.Error(), "owned by a user who is not root (uid 12345)") {
			t.Errorf("a program of another user: %v", err)
		}
	}
}
