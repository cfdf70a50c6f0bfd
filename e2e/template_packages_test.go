package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// debianPackages are the packages of the test's repository, each with the script that makes its files in the
// directory $1. They contain what packages of Debian contain: dependencies, configuration files, links, and
// scripts that create users and change owners.
var debianPackages = []struct{ name, depends, files string }{
	{"brigtest-library", "", `mkdir -p "$1/usr/share/brigtest" && echo library > "$1/usr/share/brigtest/data"`},
	{"brigtest", "brigtest-library (>= 1.0), passwd", `
mkdir -p "$1/usr/bin" "$1/etc" "$1/var/lib/brigtest"
printf '#!/bin/sh\ncat /usr/share/brigtest/data\n' > "$1/usr/bin/brigtest"
chmod 755 "$1/usr/bin/brigtest"
ln -s brigtest "$1/usr/bin/brigtest-link"
echo x > "$1/etc/brigtest.conf"
echo /etc/brigtest.conf > "$1/DEBIAN/conffiles"
cat > "$1/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
groupadd --system brigtest
useradd --system --gid brigtest --home-dir /var/lib/brigtest --shell /bin/sh brigtest
chown brigtest:brigtest /var/lib/brigtest
chmod 2775 /var/lib/brigtest
chgrp brigtest /usr/bin/brigtest
chmod 2755 /usr/bin/brigtest
su brigtest -c 'umask 022; brigtest > /var/lib/brigtest/made'
END
chmod 755 "$1/DEBIAN/postinst"`},
	{"brigtest-broken", "", `
printf '#!/bin/sh\necho the script of brigtest-broken fails >&2\nexit 1\n' > "$1/DEBIAN/postinst"
chmod 755 "$1/DEBIAN/postinst"`},
}

// debianRepository returns a directory with an unsigned repository of debianPackages.
func debianRepository(t *testing.T) string {
	t.Helper()
	repo := t.TempDir()
	var index bytes.Buffer
	for _, p := range debianPackages {
		tree, file := filepath.Join(t.TempDir(), p.name), p.name+".deb"
		control := fmt.Sprintf("Package: %s\nVersion: 1.0\nArchitecture: all\nMaintainer: none <none@example.com>\nDescription: test\n", p.name)
		if p.depends != "" {
			control += "Depends: " + p.depends + "\n"
		}
		if err := os.MkdirAll(filepath.Join(tree, "DEBIAN"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, "DEBIAN", "control"), []byte(control), 0o644); err != nil {
			t.Fatal(err)
		}
		run(t, "sh", "-ec", "umask 022\n"+p.files, "sh", tree)
		run(t, "dpkg-deb", "--root-owner-group", "--build", tree, filepath.Join(repo, file))
		content, err := os.ReadFile(filepath.Join(repo, file))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&index, "%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", control, file, len(content), sha256.Sum256(content))
	}
	release := fmt.Sprintf("Suite: test\nSHA256:\n %x %d Packages\n", sha256.Sum256(index.Bytes()), index.Len())
	for name, content := range map[string][]byte{"Packages": index.Bytes(), "Release": []byte(release)} {
		if err := os.WriteFile(filepath.Join(repo, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return repo
}

// TestE2BTemplatesInstallPackages verifies that steps of builds install packages from the hosts that the
// server allows, with apt-get, pip, npm and git, in the template base that brig setup builds.
//
//suite:part clients full
func TestE2BTemplatesInstallPackages(t *testing.T) {
	needRoot(t)
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		t.Fatal("needs mmdebstrap")
	}
	base := imageDir(t, "base") // and the packages of the clients: the lab has no network
	npm(t, "e2b")
	if !runInLab(t) {
		return
	}
	l := newEgressLab(t)
	l.name("packages.test", good)
	mux := http.NewServeMux()
	mux.Handle("/debian/", http.StripPrefix("/debian/", http.FileServer(http.Dir(debianRepository(t)))))
	mux.Handle("/repo.git/", http.StripPrefix("/repo.git/", http.FileServer(http.Dir(bareRepository(t, "echo content > file")))))
	mux.Handle("/", newIndex(t).Config.Handler)
	listener, _ := l.listen(good, 80)
	web := &http.Server{Handler: mux}
	go func() { _ = web.Serve(listener) }()
	t.Cleanup(func() { web.Close() })

	dir := dataDir(t)
	output(t, "cp", "-al", filepath.Join(base, "images"), dir) // images do not change
	s := startServer(t, dir, "--config", writeConfig(t, "metrics: {trial: 0s}\negress: {resolver: \""+nameOne+"\"}\ntools: {packages: {hosts: [\"packages.test\"]}}\n"))
	key, err := os.ReadFile(filepath.Join(dir, "e2b.key"))
	if err != nil {
		t.Fatal(err)
	}
	e := &e2bServer{s, []string{"E2B_API_KEY=" + strings.TrimSpace(string(key)), "E2B_API_URL=" + s.url, "E2B_SANDBOX_URL=" + s.url}}
	e.checks(t, 8, "packages.mjs", "PACKAGES=http://packages.test")
}
