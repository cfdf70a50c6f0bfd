package agent

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"syscall"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/nofollow"
)

// otherBundles are the paths of CA bundles in distributions other than Debian.
// The agent extends only existing bundles.
var otherBundles = [...]string{
	"/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
}

// anchor is the file from which Debian's update-ca-certificates adds the
// certificate to a rebuilt bundle.
const anchor = "/usr/local/share/ca-certificates/brig.crt"

// configureNetwork configures the sandbox's DNS resolver and installs the CA
// certificates.
func (a *Agent) configureNetwork(resolver netip.Addr, authority []byte) error {
	if err := a.resolve([]byte(wire.ResolverFile(resolver.String()))); err != nil {
		return err
	}
	if len(authority) == 0 {
		return nil
	}
	if err := a.extendBundle(wire.BundleFile, authority); err != nil {
		return err
	}
	if err := a.ensureContent(wire.AuthorityFile, authority); err != nil {
		return err
	}
	for _, name := range otherBundles {
		if _, err := os.Stat(name); err != nil || isReadOnly(path.Dir(name)) {
			continue // programs need an environment variable with the CA's path
		}
		if err := a.extendBundle(name, authority); err != nil {
			return err
		}
	}
	// Ignore a failure if /usr is mounted read-only from the host: programs cannot rebuild the
	// bundle then.
	_ = a.ensureContent(anchor, authority)
	return nil
}

// resolve makes sure that /etc/resolv.conf contains the given resolver. The runtime or the host may
// have already written the file, with additional comments, on a mount that the agent cannot
// replace.
func (a *Agent) resolve(content []byte) error {
	const name = "/etc/resolv.conf"
	if is, err := readContent(name); err == nil && bytes.Equal(withoutComments(is), content) {
		return nil
	}
	err := a.exchange(name, content)
	if st, lost := os.Lstat(name); err != nil && lost == nil && st.Mode().IsRegular() && isMounted(name) {
		// A program that runs as root has changed the file. This affects only the sandbox itself,
		// because no policy depends on the file.
		return nil
	}
	return err
}

// isMounted reports whether a file is itself a mount point. A rename cannot
// replace such a file.
func isMounted(name string) bool {
	var file, dir syscall.Stat_t
	return syscall.Lstat(name, &file) == nil && syscall.Lstat(path.Dir(name), &dir) == nil && file.Dev != dir.Dev
}

// withoutComments removes the comments and blank lines of a configuration file.
func withoutComments(b []byte) (out []byte) {
	for line := range bytes.Lines(b) {
		if says := bytes.TrimSpace(line); len(says) > 0 && says[0] != '#' && says[0] != ';' {
			out = append(append(out, says...), '\n')
		}
	}
	return out
}

// isReadOnly reports whether a directory is on a file system that is mounted
// read-only.
func isReadOnly(dir string) bool {
	const flag = 1 // ST_RDONLY
	var st syscall.Statfs_t
	return syscall.Statfs(dir, &st) == nil && st.Flags&flag != 0
}

// ensureContent makes sure that a file has exactly the given content.
func (a *Agent) ensureContent(name string, content []byte) error {
	if is, err := readContent(name); err == nil && bytes.Equal(is, content) {
		return nil
	}
	return a.exchange(name, content)
}

// extendBundle makes sure that a certificate bundle contains the given
// certificates.
func (a *Agent) extendBundle(name string, certificates []byte) error {
	is, err := readContent(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if bytes.Contains(is, certificates) {
		return nil
	}
	if len(is) > 0 && is[len(is)-1] != '\n' {
		is = append(is, '\n')
	}
	return a.exchange(name, append(is, certificates...))
}

// maxBundle is the maximum size of a certificate bundle that the agent reads,
// in bytes.
const maxBundle = 16 << 20

// readContent reads a world-readable file. A program may have replaced the file
// by a link, so readContent never blocks on a pipe. It rejects files of /proc,
// some of which only the agent may read.
func readContent(name string) ([]byte, error) {
	if _, err := os.Stat(name); err != nil {
		return nil, err
	}
	f, st, err := openRegular(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st.Mode&0o004 == 0 || st.Size > maxBundle || isOnKernelFS(f) {
		return nil, newPathError("path '%s' is not a file that everybody may read", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxBundle))
	return b, pathError(name, err)
}

// isOnKernelFS reports whether a file is on a kernel file system: proc, sysfs or
// cgroup.
func isOnKernelFS(f *os.File) bool {
	const proc, sysfs, cgroup, cgroup2 = 0x9fa0, 0x62656572, 0x27e0eb, 0x63677270
	var st syscall.Statfs_t
	raw, err := f.SyscallConn()
	if err == nil {
		err2 := raw.Control(func(fd uintptr) { err = syscall.Fstatfs(int(fd), &st) })
		err = errors.Join(err, err2)
	}
	switch st.Type {
	case proc, sysfs, cgroup, cgroup2:
		return true
	}
	return err != nil
}

// exchange replaces the file at a path with a new file owned by root. It does
// not write to an existing file, and does not follow a link at that path.
func (a *Agent) exchange(name string, content []byte) error {
	return a.rights.runAs(account{}, func() error { return exchange(name, content) })
}

func exchange(name string, content []byte) error {
	if err := (place{name}).makeDirs(path.Dir(name)); err != nil {
		return err
	}
	dir, err := nofollow.Open(path.Dir(name))
	if err != nil {
		return pathError(name, err)
	}
	f, err := createTemp(dir, path.Base(name), 0o644)
	if err != nil {
		return pathError(name, err)
	}
	defer f.close()
	if _, err = f.Write(content); err == nil {
		err = f.commit()
	}
	return pathError(name, err)
}
