package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"path"
	"syscall"
)

// hostVersion changes with every change to the contents of the host image.
const hostVersion = 2

// fingerprint hashes the state of the host that the host image depends on.
type fingerprint struct{ h hash.Hash }

func newFingerprint(privileged bool) *fingerprint {
	p := &fingerprint{h: sha256.New()}
	fmt.Fprintf(p.h, "host image %d, privileged %t\n", hostVersion, privileged)
	return p
}

// add adds a file or directory, and the target if it is a link.
func (p *fingerprint) add(m *hostFS, name string) {
	fi, err := m.lstat(name)
	if err != nil {
		fmt.Fprintf(p.h, "%q: nothing\n", name)
		return
	}
	if name == "usr" || name == "etc" {
		// The times of these directories also change with files that the image does not use.
		fmt.Fprintf(p.h, "%q: %s\n", name, fi.Mode())
	} else {
		p.addInfo(name, fi)
	}
	if fi.Mode().Type() != fs.ModeSymlink {
		return
	}
	target, _ := m.readlink(name)
	end, err := m.resolve(name)
	fmt.Fprintf(p.h, "%q -> %q -> %q %t\n", name, target, end, err == nil)
	if err == nil {
		if fi, err := m.lstat(end); err == nil && fi.Mode().IsRegular() {
			p.addInfo(end, fi)
		}
	}
}

func (p *fingerprint) addInfo(name string, fi fs.FileInfo) {
	var inode uint64
	var uid, gid uint32
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		inode, uid, gid = st.Ino, st.Uid, st.Gid
	}
	fmt.Fprintf(p.h, "%q: %s %d %d %d %d:%d\n", name, fi.Mode(), fi.Size(), fi.ModTime().UnixNano(), inode, uid, gid)
}

func (p *fingerprint) sum() string { return hex.EncodeToString(p.h.Sum(nil)) }

// fingerprint returns a hash of the host's state, as far as the host image
// depends on it. It reads no file contents.
func (m *hostFS) fingerprint(privileged bool) string {
	p := newFingerprint(privileged)
	p.add(m, "usr")
	for _, name := range hostLinks() {
		p.add(m, name)
	}
	p.add(m, "etc")
	for _, name := range hostFiles() {
		p.add(m, "etc/"+name)
	}
	for _, name := range m.hostTreeNames() {
		p.addTree(m, name)
	}
	// These two directories are large. Their files are replaced and not
	// rewritten, so the time of the directory shows a change.
	p.add(m, "etc/alternatives")
	p.add(m, certsDir)
	p.add(m, certsDir+"/ca-certificates.crt")
	p.add(m, certsDir+"/java/cacerts")
	return p.sum()
}

// addTree adds everything below dir without following links, dir included.
func (p *fingerprint) addTree(m *hostFS, dir string) {
	p.add(m, dir)
	if fi, err := m.lstat(dir); err != nil || !fi.IsDir() {
		return
	}
	for _, e := range m.list(dir) {
		p.addTree(m, path.Join(dir, e.Name()))
	}
}
