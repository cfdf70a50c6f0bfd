package image

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
)

// These limits apply to the data that is copied from the host's /etc.
const (
	maxHostFile  = 4 << 20
	maxHostBytes = 32 << 20
	maxHostFiles = 20_000
)

// syntheticHosts replaces the host's /etc/hosts in an image.
const syntheticHosts = "127.0.0.1 localhost sandbox\n::1 localhost\n"

// syntheticResolver returns the resolv.conf that the agent writes to other
// images.
func syntheticResolver() string { return wire.ResolverFile(brig.UplinkGateway.String()) }

// hostFiles returns the single files of /etc that programs under /usr need: the
// loader's files and public tables. None of them normally holds secrets.
func hostFiles() []string {
	return []string{
		"os-release", "debian_version", "ld.so.cache", "ld.so.conf", "localtime", "timezone",
		"matplotlibrc", "mime.types", "services", "protocols", "locale.alias", "magic", "magic.mime", "ssl/openssl.cnf",
	}
}

// hostTrees returns patterns of directories in /etc to which programs and
// interpreters under /usr have links. Other directories are not copied.
func hostTrees() []string {
	return []string{"ld.so.conf.d", "python3*", "perl", "java-*", "R", "node*", "fonts", "ImageMagick-*"}
}

// canHoldSecret reports whether the name of a configuration file suggests that
// it holds a key, a password, or settings that an administrator wrote.
func canHoldSecret(name string) bool {
	name = strings.ToLower(path.Base(name))
	for _, word := range []string{
		"key", "secret", "passw", "token", "credential", "private", "auth", "npmrc", "netrc",
		".p12", ".pfx", ".jks", ".site", ".pem", ".bak", ".dpkg-", "~",
	} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// writeEtc writes the synthetic /etc.
func (t *hostTree) writeEtc() error {
	shell := "/bin/sh"
	if t.m.exists("bin/bash") {
		shell = "/bin/bash"
	}
	for name, content := range map[string]string{
		"passwd": "root:x:0:0:root:/root:" + shell + "\n" +
			"daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n" +
			"user:x:1000:1000::/home/user:" + shell + "\n" +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":         "root:x:0:\ndaemon:x:1:\ntty:x:5:\nusers:x:100:\nuser:x:1000:\nnogroup:x:65534:\n",
		"hosts":         syntheticHosts,
		"hostname":      "sandbox\n",
		"resolv.conf":   syntheticResolver(),
		"nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n",
		"shells":        "/bin/sh\n/bin/bash\n",
		"profile":       "PATH=/usr/local/bin:/usr/bin:/bin:" + wire.ProgramsDir + "\nexport PATH\n",
		"pip.conf":      pipConfig,
	} {
		if err := t.write("etc/"+name, []byte(content)); err != nil {
			return err
		}
	}
	for _, name := range hostFiles() {
		if err := t.copyFile("etc/" + name); err != nil {
			return err
		}
	}
	for _, name := range t.m.hostTreeNames() {
		if err := t.copyTree(name); err != nil {
			return err
		}
	}
	if err := t.copyAlternatives(); err != nil {
		return err
	}
	return t.copyCertificates()
}

// hostTreeNames returns the directories of the host that match hostTrees.
func (m *hostFS) hostTreeNames() []string {
	var names []string
	for _, e := range m.list("etc") {
		for _, pattern := range hostTrees() {
			if ok, err := path.Match(pattern, e.Name()); err == nil && ok {
				names = append(names, "etc/"+e.Name())
				break
			}
		}
	}
	return names
}

// copyFile copies one file of the host if it exists and is public. It keeps a
// link into /usr as a link, because the sandbox has /usr as well.
func (t *hostTree) copyFile(name string) error {
	if target, ok := t.readUsrLink(name); ok {
		return t.createLink(target, name)
	}
	if p, err := t.m.resolve(name); err == nil && p != name && !isVisible(p) {
		t.log.Warn("not in the host image: a link to another folder", "file", name)
		return nil
	}
	return t.copyContent(name)
}

func (t *hostTree) copyContent(name string) error {
	b, err := t.m.read(name, maxHostFile)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			t.log.Warn("not in the host image", "file", name, "error", err)
		}
		return nil
	}
	if strings.Contains(string(b), "PRIVATE KEY-----") {
		t.log.Warn("not in the host image: a private key", "file", name)
		return nil
	}
	if !t.countCopied(name, int64(len(b))) {
		return nil
	}
	return t.write(name, b)
}

// countCopied counts the copied data and reports whether it is still within the
// limits.
func (t *hostTree) countCopied(name string, n int64) bool {
	if t.copied+1 > maxHostFiles || t.size+n > maxHostBytes {
		t.log.Warn("not in the host image: too large", "file", name)
		return false
	}
	t.copied, t.size = t.copied+1, t.size+n
	return true
}

// isVisible reports whether the sandbox sees a host file at its host path. The
// name must not contain links.
func isVisible(name string) bool {
	first, _, ok := strings.Cut(name, "/")
	return ok && (first == "usr" || slices.Contains(hostLinks(), first))
}

// readUsrLink returns the target of name if it is a link that ends in /usr, or
// in a separate /bin or /lib where the host still has these.
func (t *hostTree) readUsrLink(name string) (string, bool) {
	target, err := t.m.readlink(name)
	if err != nil {
		return "", false
	}
	p, err := t.m.resolve(name)
	if err != nil || !isVisible(p) {
		return "", false
	}
	// A relative target keeps its meaning only if the path of name contains no
	// link.
	if real, err := t.m.resolve(path.Dir(name)); err != nil || real != path.Dir(name) {
		return "", false
	}
	return target, true
}

// copyTree copies the public files and the links of a configuration directory.
func (t *hostTree) copyTree(dir string) error {
	if fi, err := t.m.lstat(dir); err != nil || !fi.IsDir() || fi.Mode().Perm()&0o005 != 0o005 {
		return nil
	}
	for _, e := range t.m.list(dir) {
		name := path.Join(dir, e.Name())
		if canHoldSecret(name) {
			continue
		}
		var err error
		switch e.Type() {
		case fs.ModeDir:
			err = t.copyTree(name)
		case fs.ModeSymlink:
			err = t.copyLink(name)
		case 0:
			err = t.copyContent(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyLink copies a link only if its target is in /usr or in the link's own
// directory.
func (t *hostTree) copyLink(name string) error {
	target, ok := t.readUsrLink(name)
	if !ok {
		beside, err := t.m.readlink(name)
		if err != nil || strings.Contains(beside, "/") || canHoldSecret(beside) {
			return nil
		}
		target = beside
	}
	if !t.countCopied(name, 0) {
		return nil
	}
	return t.createLink(target, name)
}

// copyAlternatives copies the links that select awk, java and others.
func (t *hostTree) copyAlternatives() error {
	const dir = "etc/alternatives"
	for _, e := range t.m.list(dir) {
		if e.Type() != fs.ModeSymlink {
			continue
		}
		name := path.Join(dir, e.Name())
		target, ok := t.readUsrLink(name)
		// Most alternatives point to manual pages, which a sandbox does not need.
		if !ok || strings.Contains(target, "/man/") || !t.countCopied(name, 0) {
			continue
		}
		if err := t.createLink(target, name); err != nil {
			return err
		}
	}
	return nil
}
