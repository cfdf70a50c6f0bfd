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
)

// otherBundles are where programs of other distributions than Debian look for
// whom to trust. They are only written to if there is something.
var otherBundles = [...]string{
	"/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
}

// anchor is from where Debian's update-ca-certificates makes the bundle anew.
const anchor = "/usr/local/share/ca-certificates/brig.crt"

// acquaint tells the sandbox's programs who resolves names, and whom to trust.
func (a *Agent) acquaint(resolver netip.Addr, authority []byte) error {
	if err := a.resolve([]byte(wire.ResolverFile(resolver.String()))); err != nil {
		return err
	}
	if len(authority) == 0 {
		return nil
	}
	if err := a.extend(wire.BundleFile, authority); err != nil {
		return err
	}
	if err := a.ensure(wire.AuthorityFile, authority); err != nil {
		return err
	}
	for _, name := range otherBundles {
		if _, err := os.Stat(name); err != nil || readOnly(path.Dir(name)) {
			continue // then a program has to be told by its environment
		}
		if err := a.extend(name, authority); err != nil {
			return err
		}
	}
	// Where /usr is the host's it cannot be written, and nobody can make the
	// bundle anew either.
	_ = a.ensure(anchor, authority)
	return nil
}

// resolve makes sure that programs ask whom this says. Others may have written
// it where nobody can any more, with remarks of theirs.
func (a *Agent) resolve(content []byte) error {
	const name = "/etc/resolv.conf"
	if is, err := contentOf(name); err == nil && bytes.Equal(withoutRemarks(is), content) {
		return nil
	}
	err := a.exchange(name, content)
	if st, lost := os.Lstat(name); err != nil && lost == nil && st.Mode().IsRegular() && mounted(name) {
		// Root inside has changed it, to its own harm: no rule depends on it.
		return nil
	}
	return err
}

// mounted reports whether a file is a mount of its own, which cannot be renamed
// over.
func mounted(name string) bool {
	var file, dir syscall.Stat_t
	return syscall.Lstat(name, &file) == nil && syscall.Lstat(path.Dir(name), &dir) == nil && file.Dev != dir.Dev
}

// withoutRemarks is what a file of settings says.
func withoutRemarks(b []byte) (out []byte) {
	for line := range bytes.Lines(b) {
		if says := bytes.TrimSpace(line); len(says) > 0 && says[0] != '#' && says[0] != ';' {
			out = append(append(out, says...), '\n')
		}
	}
	return out
}

// readOnly reports whether nobody can write to a directory, whoever it is.
func readOnly(dir string) bool {
	const flag = 1 // ST_RDONLY
	var st syscall.Statfs_t
	return syscall.Statfs(dir, &st) == nil && st.Flags&flag != 0
}

// ensure makes sure that a file has this content and no other.
func (a *Agent) ensure(name string, content []byte) error {
	if is, err := contentOf(name); err == nil && bytes.Equal(is, content) {
		return nil
	}
	return a.exchange(name, content)
}

// extend makes sure that a file of certificates has these, too.
func (a *Agent) extend(name string, certificates []byte) error {
	is, err := contentOf(name)
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

// maxBundle is the largest file of certificates that is looked at, in bytes.
const maxBundle = 16 << 20

// contentOf reads a file as any program may read it. A program may have put a
// link there: it waits for nothing, and does not read out /proc, where only
// the agent may see some of it.
func contentOf(name string) ([]byte, error) {
	if _, err := os.Stat(name); err != nil {
		return nil, err
	}
	f, st, err := openRegular(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st.Mode().Perm()&0o004 == 0 || st.Size() > maxBundle || onKernel(f) {
		return nil, badPath("path '%s' is not a file that everybody may read", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxBundle))
	return b, pathError(name, err)
}

// onKernel reports whether a file is the kernel's own: of proc, sysfs or a
// control group.
func onKernel(f *os.File) bool {
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

// exchange puts a file of root's in the place of whatever is there. It never
// writes into what it finds, nor where a link leads.
func (a *Agent) exchange(name string, content []byte) error {
	p := place{name: name, making: &a.making}
	if a.plain {
		p.uid, p.gid = userID, userID
	}
	if err := p.makeDirs(path.Dir(name)); err != nil {
		return err
	}
	f, err := p.beside()
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.Write(content); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return pathError(name, err)
}
