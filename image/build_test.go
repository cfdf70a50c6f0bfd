package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

func TestBuildRejectsInvalidArguments(t *testing.T) {
	t.Parallel()
	s := hostStore(t, debianHost(t))
	s.opts.lookPath = func(string) (string, error) { return "", exec.ErrNotFound }
	for _, c := range []struct {
		pkg, suite, field string
	}{
		{pkg: "python3-numpy"}, {pkg: "g++"}, {pkg: "libc6:i386"}, {pkg: "libstdc++6"}, {pkg: "0ad"},
		{suite: "bookworm"}, {suite: "bookworm-backports"},
		{pkg: "", field: "packages"}, {pkg: "a", field: "packages"}, {pkg: "-y", field: "packages"},
		{pkg: "--include=x", field: "packages"}, {pkg: "vim-", field: "packages"}, {pkg: "a,b", field: "packages"},
		{pkg: "a b", field: "packages"}, {pkg: "a\nb", field: "packages"}, {pkg: "a\x00b", field: "packages"},
		{pkg: "a=1", field: "packages"}, {pkg: "a/sid", field: "packages"}, {pkg: "./a.deb", field: "packages"},
		{pkg: "a*", field: "packages"}, {pkg: "?essential", field: "packages"}, {pkg: "~nx", field: "packages"},
		{pkg: "Abc", field: "packages"}, {pkg: "aa:", field: "packages"}, {pkg: "aa:-x", field: "packages"},
		{pkg: "aa:b:c", field: "packages"}, {pkg: "$(id)", field: "packages"}, {pkg: strings.Repeat("a", 129), field: "packages"},
		{suite: "-x", field: "suite"}, {suite: "a b", field: "suite"}, {suite: "../x", field: "suite"},
		{suite: "A", field: "suite"}, {suite: "a\n", field: "suite"}, {suite: strings.Repeat("a", 65), field: "suite"},
	} {
		b := brig.ImageBuild{Name: "x", Suite: c.suite, Packages: []string{"bash"}}
		if c.suite == "" {
			b.Packages = append(b.Packages, c.pkg)
		}
		_, err := s.Build(t.Context(), b, nil)
		want := brig.InvalidArgument
		if c.field == "" {
			want = brig.Unavailable // validation passed and the search for a builder failed
		}
		if e := brig.AsError(err); e.Kind != want || e.Field != c.field {
			t.Errorf("package %q, suite %q: %v, want %s in %q", c.pkg, c.suite, err, want, c.field)
		}
	}
	_, err := s.Build(t.Context(), brig.ImageBuild{Name: "x", Packages: make([]string, 1001)}, nil)
	if e := brig.AsError(err); e.Field != "packages" {
		t.Errorf("1001 packages: %v", err)
	}
	_, err = s.Build(t.Context(), brig.ImageBuild{Name: "x"}, nil)
	if e := brig.AsError(err); e.Kind != brig.Unavailable || !strings.Contains(e.Hint, "apt-get install mmdebstrap") {
		t.Errorf("without a builder: %v", err)
	}
}

// debianHost creates a host tree with package sources in both formats.
func debianHost(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "debian")
	writeFile(t, root+"/etc/os-release", "NAME=x\nVERSION_CODENAME=\"bookworm\"\n")
	writeFile(t, root+"/usr/share/keyrings/k.gpg", "a public key")
	writeFile(t, root+"/etc/apt/sources.list", `# comment
deb [arch=amd64 signed-by=/usr/share/keyrings/k.gpg] http://a.invalid/debian bookworm main contrib # tail
deb-src http://a.invalid/debian bookworm main
deb http://a.invalid/debian bookworm-updates main
deb http://b.invalid/other stable-tool stable
deb http://c.invalid/x jammy main
debris
`)
	writeFile(t, root+"/etc/apt/sources.list.d/s.sources", `Types: deb deb-src
URIs: http://user:secret@s.invalid/security
Suites: bookworm-security bookworm/updates
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc

Enabled: no
Types: deb
URIs: http://off.invalid/
Suites: bookworm
Components: main
`)
	writeFile(t, root+"/etc/apt/sources.list.d/x.list.disabled", "deb http://disabled.invalid/ bookworm main\n")
	return root
}

func TestPackageSourcesFollowHost(t *testing.T) {
	t.Parallel()
	m, err := openHostFS(debianHost(t))
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	own, err := m.readPackageSources("")
	if err != nil {
		t.Fatal(err)
	}
	const want = `Types: deb
URIs: http://a.invalid/debian
Suites: bookworm
Components: main contrib
Signed-By: /usr/share/keyrings/k.gpg

Types: deb
URIs: http://a.invalid/debian
Suites: bookworm-updates
Components: main

Types: deb
URIs: http://user:secret@s.invalid/security
Suites: bookworm-security bookworm/updates
Components: main
Signed-By: 
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc

`
	if own.suite != "bookworm" || own.String() != want || own.uri() != "http://a.invalid/debian" {
		t.Errorf("%s at %s:\n%s", own.suite, own.uri(), own)
	}
	other, err := m.readPackageSources("trixie")
	if err != nil {
		t.Fatal(err)
	}
	if got := other.String(); strings.Count(got, "Suites:") != 1 || !strings.Contains(got, "Suites: trixie\n") {
		t.Errorf("trixie:\n%s", got)
	}
	empty, err := openHostFS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer empty.close()
	if _, err := empty.readPackageSources("bookworm"); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("without sources: %v", err)
	}
}

// An image keeps the sources that its sandboxes can use, and no credentials.
func TestImageKeepsPublicSources(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	writeFile(t, root+"/etc/apt/keyrings/own.asc", "a public key")
	writeFile(t, root+"/etc/apt/keyrings/private.asc", "-----BEGIN PGP PRIVATE KEY BLOCK-----")
	m, err := openHostFS(root)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	for _, c := range []struct {
		uri, signedBy string
		want          bool
	}{
		{uri: "http://a.invalid/debian", want: true},
		{uri: "https://a.invalid/debian/", want: true},
		{uri: "http://user:secret@a.invalid/debian"}, {uri: "http://token@a.invalid/debian"},
		{uri: "https://a.invalid/debian?token=secret"}, {uri: "https://a.invalid/debian#secret"},
		{uri: "file:/srv/debian"}, {uri: "cdrom:[x]/"}, {uri: "mirror+file:/etc/apt/mirrors"}, {uri: "http:/debian"}, {uri: "http://%zz/"},
		{uri: "http://a.invalid/", signedBy: "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc", want: true},
		{uri: "http://a.invalid/", signedBy: strings.Repeat("A1", 20), want: true},
		{uri: "http://a.invalid/", signedBy: "/etc/apt/keyrings/own.asc, " + strings.Repeat("A1", 20), want: true},
		{uri: "http://a.invalid/", signedBy: "/etc/apt/keyrings/missing.asc"},
		{uri: "http://a.invalid/", signedBy: "/etc/apt/keyrings/private.asc"},
		{uri: "http://a.invalid/", signedBy: "/etc/apt/keyrings/../../shadow"},
	} {
		from := packageSources{sources: []source{{uris: []string{c.uri}, suites: []string{"x"}, components: []string{"main"}, signedBy: c.signedBy}}}
		if got := from.keep(m).text; strings.Contains(got, "URIs: "+c.uri+"\n") != c.want || !c.want && got != "" {
			t.Errorf("%q, signed by %q: %q", c.uri, c.signedBy, got)
		}
	}
}

// fakeBuilder returns an arena whose mmdebstrap is a script. The script finds
// archive in $ARCHIVE.
func fakeBuilder(t *testing.T, archive []byte, script string) *arena {
	t.Helper()
	a := newArena(t)
	tools := t.TempDir()
	writeFile(t, tools+"/archive.tar", string(archive))
	writeFile(t, tools+"/mmdebstrap", "#!/bin/sh\nARCHIVE="+tools+"/archive.tar\n"+script)
	if err := os.Chmod(tools+"/mmdebstrap", 0o755); err != nil {
		t.Fatal(err)
	}
	a.store.opts.hostRoot = debianHost(t)
	a.store.opts.lookPath = func(name string) (string, error) {
		if name == "mmdebstrap" {
			return tools + "/mmdebstrap", nil
		}
		return "", exec.ErrNotFound
	}
	return a
}

func TestBuildImportsOutputOfBuilder(t *testing.T) {
	t.Parallel()
	m := newMaker(t)
	m.addFile("etc/apt/sources.list", "deb http://user:secret@s.invalid/ x main")
	m.addFile("etc/apt/sources.list.d/a.sources", canaryText)
	m.addFile("etc/apt/auth.conf.d/a", canaryText)
	m.addLink("etc/resolv.conf", "/etc/shadow")
	m.addFile("etc/hostname", canaryText)
	a := fakeBuilder(t, m.bytes(), `
test "$*" = '--variant=minbase --format=tar --aptopt=APT::Cmd::Pattern-Only "true" --include=bash,g++ -- bookworm - -' || { echo "$*" >&2; exit 2; }
grep -q 'user:secret@s.invalid' || exit 3
test "$(env | grep -c -v -E '^(PATH|HOME|TMPDIR|LC_ALL|DEBIAN_FRONTEND|PWD|SHLVL|_|OLDPWD)=')" = 1 || exit 4
test "$http_proxy" = p || exit 5
echo 'I: step one' >&2
echo 'I: from http://user:secret@s.invalid/' >&2
echo 'W: warning' >&2
cat $ARCHIVE
`)
	a.store.opts.BuildEnv = []string{"http_proxy=p"}
	var steps []string
	img, err := a.store.Build(t.Context(), brig.ImageBuild{Name: "deb", Packages: []string{"bash", "g++"}},
		func(p brig.Progress) { steps = append(steps, p.Step) })
	if err != nil {
		t.Fatal(err)
	}
	if img.Source != "debian" || !slices.Equal(img.Names, []string{"deb"}) {
		t.Errorf("%+v", img)
	}
	if got := strings.Join(steps, "|"); !strings.Contains(got, "step one") || strings.Contains(got, "secret") || strings.Contains(got, "warning") {
		t.Errorf("steps %s", got)
	}
	r, err := a.store.Root(img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	all := listTree(t, r.Dir)
	if all["etc/apt/sources.list"] != "" || all["etc/apt/sources.list.d/a.sources"] != "" || all["etc/resolv.conf"] != "-rw-r--r--" || all["etc/machine-id"] != "-rw-r--r--" || all[sudoFile] != "-rwxr-xr-x" {
		t.Errorf("%v", all)
	}
	kept, err := os.ReadFile(filepath.Join(r.Dir, keptSourcesFile))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(kept); !strings.Contains(got, "URIs: http://a.invalid/debian\nSuites: bookworm\n") || !strings.Contains(got, "Signed-By: /usr/share/keyrings/k.gpg") || strings.Contains(got, "s.invalid") {
		t.Errorf("the image's sources:\n%s", got)
	}
	if key, err := os.ReadFile(filepath.Join(r.Dir, "usr/share/keyrings/k.gpg")); string(key) != "a public key" {
		t.Errorf("the image's keyring: %q, %v", key, err)
	}
	if err := a.checkUnchanged(); err != nil {
		t.Error(err)
	}
}

func TestFailedBuildLeavesNoImage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		kind   brig.Kind
		field  string
		says   string
	}{
		"no package":   {"echo 'E: Unable to locate package nope' >&2; exit 100", brig.InvalidArgument, "packages", "nope"},
		"at once":      {"echo 'E: http://user:secret@s.invalid' >&2; exit 1", brig.CreationFailed, "", "failed"},
		"half way":     {"head -c 1000 $ARCHIVE; exit 1", brig.CreationFailed, "", "failed"},
		"at the end":   {"cat $ARCHIVE; exit 1", brig.CreationFailed, "", "failed"},
		"no archive":   {"exit 0", brig.InvalidArgument, "archive", ""},
		"bad archive":  {"echo hello; exit 0", brig.InvalidArgument, "archive", ""},
		"endless":      {"cat $ARCHIVE; cat /dev/zero", brig.InvalidArgument, "archive", "tar stream"},
		"does not end": {"echo garbage garbage; sleep 600 & sleep 600", brig.InvalidArgument, "archive", ""},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			a := fakeBuilder(t, smallArchive(t), c.script)
			if name == "does not end" {
				c.script = "" // the tar reader needs a whole block before it reports an error
				a = fakeBuilder(t, smallArchive(t), "head -c 1000 /dev/urandom; sleep 600 & sleep 600")
			}
			start := time.Now()
			_, err := a.store.Build(t.Context(), brig.ImageBuild{Name: "deb"}, nil)
			e := brig.AsError(err)
			if e == nil || e.Kind != c.kind || e.Field != c.field || !strings.Contains(e.Message, c.says) {
				t.Errorf("%v", err)
			}
			if e != nil && strings.Contains(e.Message+e.Hint, "secret") {
				t.Errorf("tells a secret: %s; %s", e.Message, e.Hint)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
			if err := a.checkUnchanged(); err != nil {
				t.Error(err)
			}
			if leftovers, err := filepath.Glob(a.store.path("sha256-*")); err != nil || len(leftovers) > 0 {
				t.Errorf("left %v, %v", leftovers, err)
			}
		})
	}
}

func TestCanceledBuildKillsBuilder(t *testing.T) {
	t.Parallel()
	// The mark distinguishes the processes of this test from all others.
	mark := fmt.Sprintf("60%d", time.Now().UnixNano()%1e7)
	a := fakeBuilder(t, nil, "echo 'I: sleeping' >&2; mkdir -p $TMPDIR/a/b; setsid sleep "+mark+" & sleep "+mark)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := a.store.Build(ctx, brig.ImageBuild{Name: "deb"}, func(p brig.Progress) {
		if p.Step == "sleeping" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || brig.KindOf(err) != brig.Canceled {
		t.Errorf("%v", err)
	}
	if err := a.checkUnchanged(); err != nil {
		t.Error(err)
	}
	if os.Geteuid() != 0 {
		return // without a process namespace only the group is killed
	}
	for deadline := time.Now().Add(time.Minute); isRunning(t, mark); {
		if time.Now().After(deadline) {
			t.Fatal("a child of the builder is still running")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// isRunning reports whether a process has the argument.
func isRunning(t *testing.T, arg string) bool {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range lines {
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), "sleep\x00"+arg) {
			return true
		}
	}
	return false
}

// TestBuiltDebianImageIsComplete builds a real image. It needs mmdebstrap, root and a package
// source, and takes half a minute.
func TestBuiltDebianImageIsComplete(t *testing.T) {
	if !testenv.IsFull() {
		t.Skip("downloads a Debian system: runs at full size (make test-all PART=packages)")
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil || os.Geteuid() != 0 {
		t.Skipf("mmdebstrap is not there, or we are not root: %v", err)
	}
	s, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.Build(t.Context(), brig.ImageBuild{Name: "deb", Packages: []string{"sed"}},
		func(p brig.Progress) { t.Log(p.Step, p.Done) })
	if e := brig.AsError(err); e != nil {
		if e.Kind == brig.FailedPrecondition {
			t.Skip(e.Message)
		}
		t.Fatalf("%v (%s)", err, e.Hint)
	}
	r, err := s.Root(img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"usr/bin/bash", "usr/bin/sed", "usr/bin/dpkg"} {
		if _, err := os.Lstat(filepath.Join(r.Dir, name)); err != nil {
			t.Error(err)
		}
	}
	if img.Files < 1000 || img.Size < 50<<20 {
		t.Errorf("%+v", img)
	}
	_, err = s.Build(t.Context(), brig.ImageBuild{Name: "deb2", Packages: []string{"no-such-package-at-all"}}, nil)
	if e := brig.AsError(err); e.Kind != brig.InvalidArgument || e.Field != "packages" {
		t.Errorf("a package that there is not: %v", err)
	}
	_, err = s.Build(t.Context(), brig.ImageBuild{Name: "deb2", Packages: []string{"b.*sh", "zz.+"}}, nil)
	if e := brig.AsError(err); e.Kind != brig.InvalidArgument || e.Field != "packages" {
		t.Errorf("a pattern: %v", err)
	}
	if leftovers, err := os.ReadDir(s.path("tmp")); err != nil || len(leftovers) > 0 {
		t.Errorf("left %v, %v", leftovers, err)
	}
}
