package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/brig-run/brig"
)

// grace is the time that a builder may take to exit after its archive has
// ended.
const grace = 10 * time.Second

// Build implements brig.ImageStore. It needs mmdebstrap, or debootstrap and
// root privileges. It uses the package sources of the host.
func (s *Store) Build(ctx context.Context, b brig.ImageBuild, report func(brig.Progress)) (*brig.Image, error) {
	if err := checkBuild(b); err != nil {
		return nil, err
	}
	m, err := openHostFS(s.opts.hostRoot)
	if err != nil {
		return nil, err
	}
	defer m.close()
	from, err := m.readPackageSources(b.Suite)
	if err != nil {
		return nil, err
	}
	kept := from.keep(m)
	w, err := s.newScratch()
	if err != nil {
		return nil, err
	}
	defer w.discard()
	c, err := s.newBuilder(b, from, w)
	if err != nil {
		return nil, err
	}
	report = serializeReports(report)
	report(brig.Progress{Step: "fetch and install packages of " + from.suite})

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The kernel kills the child when this thread ends (PR_SET_PDEATHSIG), so
	// that the child does not outlive the server.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.start(ctx, report); err != nil {
		return nil, err
	}
	img, err := s.createFromArchive(ctx, importJob{
		name: b.Name, source: sourceDebian, tar: c.out, arrived: c.wait, edit: kept.replaceBuilderFiles,
	}, report)
	if err == nil {
		return img, nil
	}
	if !c.isStdoutClosed() {
		cancel() // otherwise the builder keeps writing to a pipe without a reader
	}
	defer time.AfterFunc(grace, cancel).Stop()
	// A failed builder leaves a truncated archive. Report the builder's error and
	// not the archive's.
	if werr := c.wait(); werr != nil && !c.isCanceled() && brig.KindOf(err) == brig.InvalidArgument {
		err = werr
	}
	return nil, err
}

// checkBuild rejects values that a builder could read as an option or a
// pattern.
func checkBuild(b brig.ImageBuild) error {
	if err := checkNewName(b.Name); err != nil {
		return err
	}
	if b.Suite != "" && !isValidSuite(b.Suite) {
		return brig.InvalidField("suite", "%.80q is not the name of a Debian release", b.Suite).
			WithHint("for example: bookworm")
	}
	const maximum = 1000
	if len(b.Packages) > maximum {
		return brig.InvalidField("packages", "there are more than %d", maximum)
	}
	for _, p := range b.Packages {
		if !isValidPackage(p) {
			return brig.InvalidField("packages", "%.80q is not the name of a Debian package", p).
				WithHint("for example: python3-numpy")
		}
	}
	return nil
}

const lowerAndDigits = "abcdefghijklmnopqrstuvwxyz0123456789"

// isValidPackage accepts Debian package names, optionally followed by a colon and
// an architecture. It rejects a trailing "-", because apt reads it as a request
// to remove the package.
func isValidPackage(p string) bool {
	name, arch, hasArch := strings.Cut(p, ":")
	if hasArch && (arch == "" || strings.Trim(arch, lowerAndDigits) != "") {
		return false
	}
	return len(name) >= 2 && len(name) <= 128 && strings.Trim(name[:1], lowerAndDigits) == "" &&
		strings.Trim(name, lowerAndDigits+"+.-") == "" && !strings.HasSuffix(name, "-")
}

func isValidSuite(s string) bool {
	return len(s) <= 64 && strings.Trim(s[:1], lowerAndDigits) == "" && strings.Trim(s, lowerAndDigits+".-") == ""
}

// newBuilder chooses the command that builds b and writes the result as a tar
// archive.
func (s *Store) newBuilder(b brig.ImageBuild, from *packageSources, w *scratch) (*child, error) {
	tmp := filepath.Join(w.dir, "tmp")
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return nil, fmt.Errorf("make build folder: %w", err)
	}
	c := &child{dir: tmp, namespaces: s.privileged, extraEnv: s.opts.BuildEnv}
	if path, err := s.opts.lookPath("mmdebstrap"); err == nil {
		c.path = path
		c.args = []string{
			"--variant=minbase", "--format=tar",
			// Treat an unknown package name as an error and not as a pattern.
			`--aptopt=APT::Cmd::Pattern-Only "true"`,
		}
		if len(b.Packages) > 0 {
			c.args = append(c.args, "--include="+strings.Join(b.Packages, ","))
		}
		// Pass the sources through standard input: they may contain a password,
		// and every user on the host can read a command line.
		c.args = append(c.args, "--", from.suite, "-", "-")
		c.in = from.String()
		return c, nil
	}
	if path, err := s.opts.lookPath("debootstrap"); err == nil && s.privileged {
		return c, c.useDebootstrap(path, b, from)
	}
	return nil, brig.Errorf(brig.Unavailable, "building an image of Debian packages needs mmdebstrap on this machine").
		WithHint("apt-get install mmdebstrap")
}

// useDebootstrap makes c run debootstrap, which fills a directory, and then
// tar.
func (c *child) useDebootstrap(path string, b brig.ImageBuild, from *packageSources) error {
	if strings.ContainsAny(from.uri(), "@") {
		return brig.Errorf(brig.Unavailable, "this machine's package source has a password, which debootstrap would show to all users").
			WithHint("apt-get install mmdebstrap")
	}
	// The values are arguments of the script and never part of its text.
	const script = `set -e; rootfs=$1; shift; "$@" >&2; exec tar --numeric-owner --one-file-system -C "$rootfs" -c .`
	rootfs := filepath.Join(c.dir, "rootfs")
	c.path = "/bin/sh"
	c.args = []string{"-c", script, "sh", rootfs, path, "--variant=minbase"}
	if len(b.Packages) > 0 {
		c.args = append(c.args, "--include="+strings.Join(b.Packages, ","))
	}
	c.args = append(c.args, from.suite, rootfs, from.uri())
	c.needNamespaces = true // debootstrap mounts file systems below rootfs, which is deleted later
	return nil
}

// replaceBuilderFiles replaces the files that a builder copies from its host: package
// sources, which may contain passwords, the host name and the resolver.
func (k *keptSources) replaceBuilderFiles(f *finisher) error {
	for _, name := range []string{
		"etc/apt/sources.list", "etc/apt/sources.list.d", "etc/apt/auth.conf", "etc/apt/auth.conf.d",
		"etc/apt/apt.conf.d/99mmdebstrap", "var/lib/apt/lists", "var/cache/apt/archives",
		"var/log/bootstrap.log", "debootstrap",
	} {
		if err := f.root.RemoveAll(name); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	for name, content := range map[string]string{
		"etc/hostname": "sandbox\n", "etc/hosts": syntheticHosts, "etc/resolv.conf": syntheticResolver(),
		"etc/machine-id": "",
	} {
		if err := f.write(name, []byte(content)); err != nil {
			return err
		}
	}
	if err := explainSudo(f); err != nil {
		return err
	}
	for _, name := range []string{"etc/apt/sources.list.d", "var/lib/apt/lists", "var/cache/apt/archives"} {
		if err := f.root.MkdirAll(name, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
	}
	return k.write(f)
}

// serializeReports serializes calls of report, because the goroutine that reads
// messages and the one that reads the archive both call it.
func serializeReports(report func(brig.Progress)) func(brig.Progress) {
	if report == nil {
		return func(brig.Progress) {}
	}
	var mu sync.Mutex
	return func(p brig.Progress) {
		mu.Lock()
		defer mu.Unlock()
		report(p)
	}
}
