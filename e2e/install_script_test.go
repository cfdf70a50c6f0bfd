package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// fakeRelease is a signed release that is served on loopback. Its program only prints the
// version.
type fakeRelease struct {
	dir, key, secret string
	url              string
}

const fakeVersion = "1.2.3"

// minisign runs minisign, which signs releases.
func minisign(t *testing.T, args ...string) string {
	t.Helper()
	return output(t, bin(t, "test/minisign"), args...)
}

// newFakeRelease creates and signs the files that install.sh downloads.
func newFakeRelease(t *testing.T) *fakeRelease {
	t.Helper()
	r := &fakeRelease{dir: t.TempDir()}
	keys := t.TempDir()
	r.secret = filepath.Join(keys, "key")
	r.key = newKey(t, r.secret)
	top := fmt.Sprintf("brig_%s_linux_%s", fakeVersion, runtime.GOARCH)
	var archive bytes.Buffer
	z := gzip.NewWriter(&archive)
	w := tar.NewWriter(z)
	for _, f := range []struct {
		name, text string
		mode       int64
	}{
		{"/brig", "#!/bin/sh\necho brig " + fakeVersion + "\n", 0o755}, {"/man/brig.1.gz", "page", 0o644},
	} {
		if err := w.WriteHeader(&tar.Header{Name: top + f.name, Mode: f.mode, Size: int64(len(f.text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	r.write(t, top+".tar.gz", archive.Bytes())
	r.write(t, "SHA256SUMS", fmt.Appendf(nil, "%x  %s.tar.gz\n%x  other\n", sha256.Sum256(archive.Bytes()), top, sha256.Sum256(nil)))
	r.sign(t, r.secret)
	server := httptest.NewServer(http.FileServer(http.Dir(r.dir)))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// newKey creates a signing key without a password, and returns its public key.
func newKey(t *testing.T, secret string) string {
	t.Helper()
	minisign(t, "-G", "-W", "-s", secret, "-p", secret+".pub")
	b, err := os.ReadFile(secret + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	_, key, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	return key
}

func (r *fakeRelease) archive() string {
	return fmt.Sprintf("brig_%s_linux_%s.tar.gz", fakeVersion, runtime.GOARCH)
}

func (r *fakeRelease) write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *fakeRelease) read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (r *fakeRelease) sign(t *testing.T, secret string) {
	t.Helper()
	minisign(t, "-S", "-s", secret, "-m", filepath.Join(r.dir, "SHA256SUMS"), "-x", filepath.Join(r.dir, "SHA256SUMS.minisig"))
}

// verifiers are the programs that install.sh can use to verify the signature.
var verifiers = []string{"minisign", "openssl"}

// install runs install.sh with the given verifier, and returns the output and the installation
// directory.
func (r *fakeRelease) install(t *testing.T, verifier string, env ...string) (string, string, error) {
	t.Helper()
	path, prefix := t.TempDir(), t.TempDir()
	tools := []string{
		"sh", "uname", "mktemp", "rm", "curl", "tar", "gzip", "sha256sum", "grep", "sed", "base64", "wc", "head", "tail", "od", "cp",
		"chmod", "mv", "mkdir", "cat", verifier,
	}
	for _, name := range tools {
		at, err := exec.LookPath(name)
		if name == "minisign" {
			at, err = bin(t, "test/minisign"), nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(at, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "../install.sh")
	cmd.Env = append([]string{
		"PATH=" + path, "BRIG_VERSION=v" + fakeVersion, "BRIG_RELEASE_KEY=" + r.key, "BRIG_URL_BASE=" + r.url, "BRIG_PREFIX=" + prefix, "HOME=" + prefix,
	}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), prefix, err
}

// TestInstallScript verifies that install.sh installs a correctly signed
// release, with minisign and with OpenSSL.
//
//suite:part install
func TestInstallScript(t *testing.T) {
	r := newFakeRelease(t)
	for _, verifier := range verifiers {
		t.Run(verifier, func(t *testing.T) {
			out, prefix, err := r.install(t, verifier)
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if s := output(t, filepath.Join(prefix, "bin", "brig")); s != "brig "+fakeVersion+"\n" {
				t.Errorf("the installed program prints %q", s)
			}
			if _, err := os.Stat(filepath.Join(prefix, "share/man/man1/brig.1.gz")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestInstallScriptRejectsInvalidDownloads verifies that install.sh does not install files with
// an invalid signature. TestInstallScript is the control.
//
//suite:part install
func TestInstallScriptRejectsInvalidDownloads(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(*testing.T, *fakeRelease) []string
		want string
	}{
		{"changed archive", func(t *testing.T, r *fakeRelease) []string {
			b := r.read(t, r.archive())
			b[len(b)/2] ^= 1
			r.write(t, r.archive(), b)
			return nil
		}, "the checksum of " + "brig_" + fakeVersion},
		{"changed checksums", func(t *testing.T, r *fakeRelease) []string {
			b := append(r.read(t, r.archive()), 0)
			r.write(t, r.archive(), b)
			r.write(t, "SHA256SUMS", fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(b), r.archive()))
			return nil
		}, "the signature of SHA256SUMS is wrong"},
		{"another key", func(t *testing.T, r *fakeRelease) []string {
			other := filepath.Join(t.TempDir(), "other")
			newKey(t, other)
			r.sign(t, other)
			return nil
		}, "SHA256SUMS"},
		{"no signature", func(t *testing.T, r *fakeRelease) []string {
			if err := os.Remove(filepath.Join(r.dir, "SHA256SUMS.minisig")); err != nil {
				t.Fatal(err)
			}
			return nil
		}, "cannot download"},
		{"archive not listed", func(t *testing.T, r *fakeRelease) []string {
			r.write(t, "SHA256SUMS", fmt.Appendf(nil, "%x  other\n", sha256.Sum256(nil)))
			r.sign(t, r.secret)
			return nil
		}, "does not list"},
		{"archive listed twice", func(t *testing.T, r *fakeRelease) []string {
			b := r.read(t, "SHA256SUMS")
			r.write(t, "SHA256SUMS", append(b, b...))
			r.sign(t, r.secret)
			return nil
		}, "does not list"},
		{"no key", func(*testing.T, *fakeRelease) []string { return []string{"BRIG_RELEASE_KEY="} }, "no release key"},
	} {
		for _, verifier := range verifiers {
			t.Run(c.name+"/"+verifier, func(t *testing.T) {
				r := newFakeRelease(t)
				out, prefix, err := r.install(t, verifier, c.harm(t, r)...)
				if err == nil || !strings.Contains(out, c.want) {
					t.Errorf("it exits with %v and prints %q, want %q", err, out, c.want)
				}
				if remaining, err := os.ReadDir(prefix); err != nil || len(remaining) > 0 {
					t.Errorf("it installed %v, %v", remaining, err)
				}
			})
		}
	}
}

// TestPackageVersions verifies that package builds convert the output of git describe to valid
// version numbers.
//
//suite:part install
func TestPackageVersions(t *testing.T) {
	for described, want := range map[string][2]string{
		"v1.2.3":                  {"1.2.3", "1.2.3"},
		"v1.2.3-rc.1":             {"1.2.3-rc.1", "1.2.3rc1"},
		"v1.2.3-beta.2":           {"1.2.3-beta.2", "1.2.3b2"},
		"v1.2.3-5-gabcdef0":       {"1.2.3+5.gabcdef0", "1.2.3+5.gabcdef0"},
		"v1.2.3-rc.1-5-gabcdef0":  {"1.2.3-rc.1+5.gabcdef0", "1.2.3rc1+5.gabcdef0"},
		"v1.2.3-5-gabcdef0-dirty": {"1.2.3+5.gabcdef0.dirty", "1.2.3+5.gabcdef0.dirty"},
		"v1.2.3-dirty":            {"1.2.3+dirty", "1.2.3+dirty"},
		"abcdef0":                 {"0.0.0+20261125073311.gabcdef0", "0.0.0+20261125073311.gabcdef0"},
		"abcdef0-dirty":           {"0.0.0+20261125073311.gabcdef0.dirty", "0.0.0+20261125073311.gabcdef0.dirty"},
	} {
		for i, form := range []string{"semver", "python"} {
			cmd := exec.CommandContext(t.Context(), "../.ci/version", form)
			cmd.Env = append(os.Environ(), "VERSION="+described, "SOURCE_DATE_EPOCH=1795591991")
			out, err := cmd.Output()
			if got := strings.TrimSpace(string(out)); err != nil || got != want[i] {
				t.Errorf("%s in the form %s: %q, %v; want %q", described, form, got, err, want[i])
			}
		}
	}
}
