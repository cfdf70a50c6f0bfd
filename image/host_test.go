package image

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brig-run/brig"
)

// fakeHost creates a host tree with many secrets and with all files that an
// image needs.
func fakeHost(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "machine")
	cert, key := certificate(t)
	files := map[string]string{
		"usr/bin/bash": "#!", "usr/bin/mawk": "#!", "usr/lib/os-release": "ID=debian\nVERSION_CODENAME=bookworm\n",
		"usr/share/ca/good.crt": cert, "usr/share/zoneinfo/UTC": "TZif", "usr/share/fonts/a.conf": "<a/>",
		"lib32/ld.so": "elf",
		// These files are needed, and public.
		"etc/ld.so.cache": "cache", "etc/ld.so.conf": "include", "etc/ld.so.conf.d/a.conf": "/usr/lib/a",
		"etc/timezone": "Etc/UTC", "etc/mime.types": "text/plain txt", "etc/ssl/openssl.cnf": "[x]",
		"etc/python3.11/sitecustomize.py": "pass", "etc/java-17-openjdk/security/java.security": "x=y",
		"etc/ssl/certs/ca-certificates.crt": canaryText + cert + cert,
		"etc/ssl/certs/regular.pem":         cert,
		"etc/ssl/certs/java/cacerts":        trustStore(2),
		// These files must not be in a sandbox. Each contains the canary's text.
		"etc/shadow": canaryText, "etc/passwd": canaryText, "etc/group": canaryText, "etc/gshadow": canaryText,
		"etc/hostname": canaryText, "etc/hosts": canaryText, "etc/resolv.conf": canaryText,
		"etc/machine-id": canaryText, "etc/ssh/ssh_host_key": canaryText, "etc/ssh/sshd_config": canaryText,
		"etc/ssl/private/server.key": canaryText, "etc/ld.so.preload": canaryText, "etc/environment": canaryText,
		"etc/npmrc": canaryText, "etc/pip.conf": canaryText, "etc/apt/auth.conf": canaryText, "etc/maven/settings.xml": canaryText,
		"etc/python3.11/token.cfg": canaryText, "etc/python3.11/a.pem": canaryText, "etc/R/Renviron.site": canaryText,
		"etc/python3.11/odd.cfg":       strings.Replace(key, "\n", "\n"+canaryText, 1),
		"etc/ssl/certs/withkey.pem":    cert + key + canaryText,
		"etc/ssl/certs/text.pem":       canaryText,
		"etc/java-17-openjdk/keystore": canaryText, "etc/node/npmrc": canaryText,
		"root/.ssh/id_rsa": canaryText, "home/me/.aws/credentials": canaryText, "var/lib/db": canaryText,
		"opt/secret": canaryText, "srv/secret": canaryText, "run/secret": canaryText, "tmp/secret": canaryText,
		"boot/secret": canaryText, "secret": canaryText,
	}
	for name, content := range files {
		writeFile(t, filepath.Join(root, name), content)
	}
	for name, target := range map[string]string{
		"bin": "usr/bin", "sbin": "/usr/sbin", "lib": "usr/lib", "lib64": "../../etc",
		"etc/os-release": "../usr/lib/os-release", "etc/localtime": "/usr/share/zoneinfo/UTC",
		"etc/alternatives/awk": "/usr/bin/mawk", "etc/alternatives/nawk": "/etc/alternatives/awk",
		"etc/alternatives/secret": "/root/.ssh/id_rsa", "etc/alternatives/opt": "/opt/secret",
		"etc/ssl/certs/good.pem": "/usr/share/ca/good.crt", "etc/ssl/certs/0123abcd.0": "good.pem",
		"etc/ssl/certs/secret.pem": "/root/.ssh/id_rsa", "etc/ssl/certs/loop.pem": "loop.pem",
		"etc/python3.11/link.py": "/home/me/.aws/credentials", "etc/python3.11/beside.py": "sitecustomize.py",
		"etc/fonts": "/root", "etc/perl": "/root/.ssh", "etc/services": "/var/lib/db", "etc/magic": "/etc/shadow",
		"etc/java-17-openjdk/logging": "../../root/.ssh/id_rsa",
	} {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "usr/sbin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{
		"etc/shadow": 0o640, "etc/ssl/private": 0o700, "root": 0o700, "etc/python3.11/odd.cfg": 0o644,
	} {
		if err := os.Chmod(filepath.Join(root, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	// These files are not readable by others, because of their own mode or the mode of their
	// directory.
	writeFile(t, filepath.Join(root, "etc/python3.11/closed.cfg"), canaryText)
	writeFile(t, filepath.Join(root, "etc/python3.11/closed.d/a.cfg"), canaryText)
	for name, mode := range map[string]fs.FileMode{"closed.cfg": 0o640, "closed.d": 0o750} {
		if err := os.Chmod(filepath.Join(root, "etc/python3.11", name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root, "etc/protocols"), 0o644); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(root, "etc/R/s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return root
}

func writeFile(t *testing.T, p, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// certificate makes a certificate and its private key, both as PEM.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// trustStore returns a Java key store with one entry of the given kind: 1 is a key,
// 2 a certificate.
func trustStore(kind uint32) string {
	var b []byte
	text := func(s string) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	for _, v := range []uint32{0xfeedfeed, 2, 1, kind} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	text("alias")
	b = append(b, make([]byte, 8)...)
	text("X.509")
	b = binary.BigEndian.AppendUint32(b, 4)
	b = append(b, "cert"...)
	return string(append(b, make([]byte, 20)...))
}

// listTree describes a tree: each name with its type, mode and target.
func listTree(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := os.Lstat(p)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(strings.TrimPrefix(p, root), "/")
		all[name] = fi.Mode().String()
		if fi.Mode().Type() == fs.ModeSymlink {
			target, err := os.Readlink(p)
			all[name] = "-> " + target
			return err
		}
		if fi.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if bytes.Contains(b, []byte(strings.TrimSpace(canaryText))) || bytes.Contains(b, []byte("PRIVATE KEY")) {
				t.Errorf("%s holds a secret", name)
			}
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// top lists the top-level directories of every host image, without the layout
// links of the host.
func top() []string {
	return []string{
		"dev", "etc", "home", "media", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp", "usr", "var", "workspace",
	}
}

func topOf(all map[string]string) []string {
	var names []string
	for name := range all {
		if name != "" && !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func hostStore(t *testing.T, root string) *Store {
	t.Helper()
	o := testOptions(t.TempDir())
	o.hostRoot = root
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestHostImageContainsNoSecrets(t *testing.T) {
	t.Parallel()
	host := fakeHost(t)
	s := hostStore(t, host)
	img, err := s.Resolve(t.Context(), brig.HostImage)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Root(img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	want := []Bind{{host + "/usr", "/usr"}, {host + "/lib32", "/lib32"}}
	if !slices.Equal(r.Binds, want) {
		t.Errorf("binds %v, want %v", r.Binds, want)
	}
	all := listTree(t, r.Dir)
	// lib64 is not a link into /usr and is left out.
	if names := append(top(), "bin", "lib", "lib32", "sbin"); !slices.Equal(topOf(all), sortedCopy(names)) {
		t.Errorf("top level %v, want %v", topOf(all), sortedCopy(names))
	}
	for name, want := range map[string]string{
		"bin": "-> usr/bin", "sbin": "-> /usr/sbin", "lib32": "drwxr-xr-x", "root": "drwx------",
		"tmp": "dtrwxrwxrwx", "var/tmp": "dtrwxrwxrwx", "workspace": "drwxr-xr-x", "home/user": "drwxr-xr-x",
		"etc/os-release": "-> ../usr/lib/os-release", "etc/localtime": "-> /usr/share/zoneinfo/UTC",
		"etc/ld.so.cache": "-rw-r--r--", "etc/ld.so.conf.d/a.conf": "-rw-r--r--",
		"etc/alternatives/awk": "-> /usr/bin/mawk", "etc/alternatives/nawk": "-> /etc/alternatives/awk",
		"etc/alternatives/secret": "", "etc/alternatives/opt": "",
		"etc/ssl/certs/good.pem": "-> /usr/share/ca/good.crt", "etc/ssl/certs/0123abcd.0": "-> good.pem",
		"etc/ssl/certs/ca-certificates.crt": "-rw-r--r--", "etc/ssl/certs/java/cacerts": "-rw-r--r--",
		"etc/ssl/certs/secret.pem": "", "etc/ssl/certs/withkey.pem": "", "etc/ssl/certs/text.pem": "",
		"etc/python3.11/sitecustomize.py": "-rw-r--r--", "etc/python3.11/beside.py": "-> sitecustomize.py",
		"etc/python3.11/link.py": "", "etc/python3.11/closed.cfg": "", "etc/python3.11/closed.d": "",
		"etc/java-17-openjdk/security/java.security": "-rw-r--r--", "etc/java-17-openjdk/logging": "",
		"etc/fonts": "", "etc/perl": "", "etc/services": "", "etc/magic": "", "etc/protocols": "", "etc/R/s": "",
		"etc/shadow": "", "etc/machine-id": "", "etc/ssh": "", "etc/ssl/private": "", "etc/ld.so.preload": "",
	} {
		if all[name] != want {
			t.Errorf("%s is %q, want %q", name, all[name], want)
		}
	}
	for _, name := range []string{"usr", "lib32", "root", "home/user", "opt", "run", "srv", "tmp", "proc", "dev", "sys"} {
		if entries, err := os.ReadDir(filepath.Join(r.Dir, name)); err != nil || len(entries) > 0 {
			t.Errorf("%s holds %v, %v", name, entries, err)
		}
	}
}

func sortedCopy(s []string) []string { slices.Sort(s); return s }

func TestTrustStoreIsRecognized(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		trustStore(2): true, trustStore(1): false, "": false, trustStore(2)[:30]: false,
		trustStore(2) + "more": false, "\xfe\xed\xfe\xed": false, strings.Repeat("\xfe\xed\xfe\xed", 9): false,
	} {
		if isTrustStore([]byte(text)) != want {
			t.Errorf("%q is a trust store: %t", text, !want)
		}
	}
}

func TestHostImageFollowsHost(t *testing.T) {
	t.Parallel()
	host := fakeHost(t)
	s := hostStore(t, host)
	resolve := func() string {
		t.Helper()
		img, err := s.Resolve(t.Context(), brig.HostImage)
		if err != nil {
			t.Fatal(err)
		}
		if img.Source != "host" || !slices.Equal(img.Names, []string{"host"}) || img.Size != 0 {
			t.Errorf("%+v", img)
		}
		return img.Digest
	}
	first := resolve()
	if resolve() != first {
		t.Error("the digest changes while the machine does not")
	}
	if other := hostStore(t, host); true {
		if img, err := other.Resolve(t.Context(), brig.HostImage); err != nil || img.Digest != first {
			t.Errorf("another data folder has %v, %v", img, err)
		}
	}
	writeFile(t, filepath.Join(host, "etc/shadow"), "changed") // the image does not depend on it
	if resolve() != first {
		t.Error("the digest depends on /etc/shadow")
	}
	seen := []string{first}
	for _, name := range []string{"etc/ld.so.cache", "etc/ssl/certs/new.pem", "etc/java-17-openjdk/security/java.security"} {
		cert, _ := certificate(t)
		writeFile(t, filepath.Join(host, name), cert)
		is := resolve()
		if slices.Contains(seen, is) {
			t.Errorf("no new digest after a change to %s", name)
		}
		seen = append(seen, is)
	}
	// The image of an older sandbox remains until a client removes it.
	if _, err := s.Root(first); err != nil {
		t.Error(err)
	}
	if err := s.Remove(t.Context(), first); err != nil {
		t.Error(err)
	}
	last := seen[len(seen)-1]
	if err := os.RemoveAll(s.imageDir(last)); err != nil {
		t.Fatal(err)
	}
	if resolve() != last {
		t.Error("the image does not come back the same")
	}
}

func TestHostWithoutUsrIsRefused(t *testing.T) {
	t.Parallel()
	s := hostStore(t, t.TempDir())
	if _, err := s.Resolve(t.Context(), brig.HostImage); brig.KindOf(err) != brig.Unavailable {
		t.Errorf("%v", err)
	}
	if list, err := s.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestImageOfThisHostIsComplete checks the host image of the machine that runs the test.
func TestImageOfThisHostIsComplete(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir())
	img, err := s.Resolve(t.Context(), brig.HostImage)
	if err != nil {
		t.Skipf("this machine has no user land to look at: %v", err)
	}
	r, err := s.Root(img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	all := listTree(t, r.Dir)
	want := top()
	for _, name := range hostLinks() {
		if all[name] != "" {
			want = append(want, name)
		}
	}
	if got := topOf(all); !slices.Equal(got, sortedCopy(want)) {
		t.Errorf("top level %v, want %v", got, want)
	}
	for name, mode := range all {
		if strings.HasPrefix(mode, "-> ") || strings.HasPrefix(mode, "d") || mode == "-rw-r--r--" {
			continue
		}
		t.Errorf("%s is %s", name, mode)
	}
	if total := len(all); total > 5000 {
		t.Errorf("%d files", total)
	}
	for _, name := range []string{"etc/shadow", "etc/gshadow", "etc/machine-id", "etc/ssh", "etc/ssl/private", "etc/ld.so.preload", "etc/apt"} {
		if all[name] != "" {
			t.Errorf("%s is there", name)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etc/hostname", "etc/hosts", "etc/passwd", "etc/resolv.conf"} {
		b, err := os.ReadFile(filepath.Join(r.Dir, name))
		if err != nil || len(host) > 3 && host != "localhost" && bytes.Contains(b, []byte(host)) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	start := time.Now()
	const n = 20
	for range n {
		if _, err := s.Resolve(t.Context(), brig.HostImage); err != nil {
			t.Fatal(err)
		}
	}
	if each := time.Since(start) / n; each > time.Second {
		t.Errorf("to find that it is built takes %s", each)
	} else {
		t.Log("to find that it is built takes", each)
	}
}

// TestHostImageIsRefreshedInBackground checks that no caller waits for a check while requests
// keep coming, and that checks stop when requests stop.
func TestHostImageIsRefreshedInBackground(t *testing.T) {
	host := fakeHost(t)
	s := hostStore(t, host)
	s.opts.HostAge = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		age := func() time.Duration {
			s.hostMu.Lock()
			defer s.hostMu.Unlock()
			return time.Since(s.seenAt)
		}
		first, err := s.Resolve(t.Context(), brig.HostImage)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			time.Sleep(17 * time.Second)
			synctest.Wait()
			if age() >= s.opts.HostAge {
				t.Fatalf("the last look was %v ago", age())
			}
			if _, err := s.Resolve(t.Context(), brig.HostImage); err != nil {
				t.Fatal(err)
			}
		}
		writeFile(t, filepath.Join(host, "etc/ld.so.cache"), "changed")
		time.Sleep(s.opts.HostAge)
		synctest.Wait()
		s.hostMu.Lock()
		if s.seen.Digest == first.Digest {
			t.Error("what has changed was not seen by itself")
		}
		s.hostMu.Unlock()
		time.Sleep(hostWatchPeriod + time.Minute)
		synctest.Wait()
		if age() < 30*time.Second {
			t.Errorf("nobody asks, and it was looked at %v ago", age())
		}
	})
}
