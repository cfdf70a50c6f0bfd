package e2e

import (
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// packagedFiles returns the files of a Debian or RPM package, with their modes. The argument is
// the directory of zsh's completions, which depends on the distribution.
func packagedFiles(zsh string) map[string]string {
	files := map[string]string{"/usr/bin/brig": "-rwxr-xr-x", "/etc/brig/brig.yaml": "-rw-------"}
	for _, name := range []string{
		zsh, "/usr/lib/systemd/system/brig.service", "/usr/share/doc/brig/copyright", "/usr/share/doc/brig/CHANGELOG.md",
		"/usr/share/doc/brig/guides/deployment.md", "/usr/share/doc/brig/tutorials/grading.md", "/usr/share/man/man1/brig.1.gz", "/usr/share/man/man1/brig-sandbox-create.1.gz",
		"/usr/share/bash-completion/completions/brig", "/usr/share/fish/vendor_completions.d/brig.fish",
	} {
		files[name] = "-rw-r--r--"
	}
	return files
}

// madeOf returns the path of the only package in a directory that matches a pattern.
func madeOf(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %v, %v", pattern, dir, found, err)
	}
	return found[0]
}

// packageRPM verifies the RPM package with the rpm tool.
func packageRPM(t *testing.T, dir string) {
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Skip("no rpm (make setup installs it)")
	}
	file := madeOf(t, dir, "brig-*.rpm")
	files := map[string]string{}
	for line := range strings.Lines(output(t, "rpm", "-qp", "--qf", `[%{FILENAMES} %{FILEMODES:perms} %{FILEUSERNAME}\n]`, file)) {
		if f := strings.Fields(line); len(f) == 3 {
			files[f[0]] = f[1] + " " + f[2]
		}
	}
	for name, mode := range packagedFiles("/usr/share/zsh/site-functions/_brig") {
		if files[name] != mode+" root" {
			t.Errorf("%s has %q, want %s", name, files[name], mode)
		}
	}
	if s := output(t, "rpm", "-qp", "--configfiles", file); s != "/etc/brig/brig.yaml\n" {
		t.Errorf("configuration files %q", s)
	}
	if s := output(t, "rpm", "-qp", "--qf", "%{LICENSE} %{ARCH}", file); s != "Apache-2.0 "+map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] {
		t.Errorf("license and architecture: %q", s)
	}
	output(t, "rpm", "-K", "--nosignature", file)
}

// packageArchive verifies that the program in the archive works, and that its
// manual documents every command.
func packageArchive(t *testing.T, dir string) {
	file := madeOf(t, dir, "brig_*_linux_"+runtime.GOARCH+".tar.gz")
	top := strings.TrimSuffix(filepath.Base(file), ".tar.gz")
	to := t.TempDir()
	output(t, "tar", "-xzf", file, "-C", to)
	root := filepath.Join(to, top)
	for _, name := range []string{"LICENSE", "NOTICE", "THIRD_PARTY_NOTICES", "README.md", "CHANGELOG.md", "brig.yaml", "brig.service", "completions/brig.zsh"} {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := output(t, filepath.Join(root, "brig"), "version"); !strings.Contains(s, "gvisor v0") {
		t.Errorf("version: %q", s)
	}
	f, err := os.Open(filepath.Join(root, "man", "brig.1.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"run", "serve", "sandbox", "doctor"} {
		if !bytes.Contains(page, []byte(`brig-`+name)) && !bytes.Contains(page, []byte(`brig\-`+name)) {
			t.Errorf("the manual page does not name brig %s", name)
		}
	}
	// bash must parse the completions without an error.
	output(t, "bash", "-n", filepath.Join(root, "completions", "brig.bash"))
}

// linkedModules returns the modules that are linked into the programs, according to their Go
// build information.
func linkedModules(t *testing.T) map[string]string {
	t.Helper()
	modules := map[string]string{}
	for _, name := range []string{"brig", "brig-agent", "brig-engine", "brig-shim"} {
		info, err := buildinfo.ReadFile(bin(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range info.Deps {
			modules[m.Path] = m.Version
		}
	}
	if modules["gvisor.dev/gvisor"] == "" || len(modules) < 50 {
		t.Fatalf("only %d modules are linked in", len(modules))
	}
	return modules
}

// packageSBOM verifies that the bill of materials lists every linked module,
// with its version and license.
func packageSBOM(t *testing.T, dir string) {
	b, err := os.ReadFile(madeOf(t, dir, "brig_*_linux_"+runtime.GOARCH+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		Format     string `json:"bomFormat"`
		Components []struct {
			Name, Version string
			Evidence      struct{ Licenses []json.RawMessage }
			Licenses      []json.RawMessage
		}
	}
	if err := json.Unmarshal(b, &bom); err != nil || bom.Format != "CycloneDX" {
		t.Fatalf("format %q, %v", bom.Format, err)
	}
	listed, licensed := map[string]string{}, 0
	for _, c := range bom.Components {
		listed[c.Name] = c.Version
		if len(c.Licenses)+len(c.Evidence.Licenses) > 0 {
			licensed++
		}
	}
	for name, v := range linkedModules(t) {
		if listed[name] != v {
			t.Errorf("%s is %q in the bill of materials, and %s in the program", name, listed[name], v)
		}
	}
	if licensed*10 < len(bom.Components)*9 {
		t.Errorf("%d of %d components have a license", licensed, len(bom.Components))
	}
}

// packageNotices verifies that the notices cover every linked module and
// include Go's own license.
func packageNotices(t *testing.T, dir string) {
	b, err := exec.CommandContext(t.Context(), "tar", "-xzOf", madeOf(t, dir, "brig_*_linux_"+runtime.GOARCH+".tar.gz"), "--wildcards", "*/THIRD_PARTY_NOTICES").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range linkedModules(t) {
		if !bytes.Contains(b, []byte("\n"+name+" "+v+"\n")) {
			t.Errorf("no notice of %s %s", name, v)
		}
	}
	for _, name := range []string{"\nGo standard library go1", "\nParsers of screen/grammar\n", "\nPackages in the console\n", "react"} {
		if !bytes.Contains(b, []byte(name)) {
			t.Errorf("no notice of %q", strings.TrimSpace(name))
		}
	}
}

// packageLayout verifies the OCI layout: its platforms, its entrypoint and its
// health check.
func packageLayout(t *testing.T, dir string) {
	to := t.TempDir()
	output(t, "tar", "-xf", madeOf(t, dir, "brig_*_oci.tar"), "-C", to)
	index, err := layout.ImageIndexFromPath(to)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := index.IndexManifest()
	if err != nil || len(outer.Manifests) != 1 {
		t.Fatalf("%+v, %v", outer, err)
	}
	inner, err := index.ImageIndex(outer.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	list, err := inner.IndexManifest()
	if err != nil || len(list.Manifests) == 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, m := range list.Manifests {
		img, err := inner.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		c, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if m.Platform == nil || c.Architecture != m.Platform.Architecture || c.OS != "linux" {
			t.Errorf("platform %v, configuration %s/%s", m.Platform, c.OS, c.Architecture)
		}
		if h := c.Config.Healthcheck; h == nil || !strings.Contains(strings.Join(h.Test, " "), "healthcheck") {
			t.Errorf("health check %+v", h)
		}
	}
}

// TestHealthcheckFollowsReadiness verifies that the health check of containers succeeds while the server is
// ready, and fails if no server runs.
//
//suite:part install
func TestHealthcheckFollowsReadiness(t *testing.T) {
	needRoot(t)
	dir := dataDir(t)
	check := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), bin(t, "brig"), append([]string{"--data-dir", dir, "healthcheck"}, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := check(); err == nil || !strings.Contains(out, "no server uses the data folder") {
		t.Errorf("without a server: %v: %s", err, out)
	}
	s := startServer(t, dir, "--pool", "0")
	if out, err := check(); err != nil || out != "" {
		t.Errorf("with a server: %v: %s", err, out)
	}
	if out, err := check("--url", s.url+"/nowhere"); err == nil || !strings.Contains(out, "is not ready") {
		t.Errorf("at a wrong path: %v: %s", err, out)
	}
	s.kill()
	if out, err := check("--url", s.url); err == nil || !strings.Contains(out, "does not answer") {
		t.Errorf("after the server: %v: %s", err, out)
	}
}
