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

// What may be copied of the machine's /etc, at most.
const (
	maxHostFile  = 4 << 20
	maxHostBytes = 32 << 20
	maxHostFiles = 20_000
)

// What an image says of names instead of what this machine says.
const syntheticHosts = "127.0.0.1 localhost sandbox\n::1 localhost\n"

// syntheticResolver is the one that the agent writes to other images.
func syntheticResolver() string { return wire.ResolverFile(brig.UplinkGateway.String()) }

// hostFiles are the single files of /etc that programs under /usr need: the
// loader's, and public tables. None of them is a place for secrets.
func hostFiles() []string {
	return []string{
		"os-release", "debian_version", "ld.so.cache", "ld.so.conf", "localtime", "timezone",
		"matplotlibrc", "mime.types", "services", "protocols", "locale.alias", "magic", "magic.mime", "ssl/openssl.cnf",
	}
}

// hostTrees are the directories of /etc, as patterns, into which programs and
// interpreters under /usr have links. A name that is not here is not copied.
func hostTrees() []string {
	return []string{"ld.so.conf.d", "python3*", "perl", "java-*", "R", "node*", "fonts", "ImageMagick-*"}
}

// mayHoldSecret reports whether the name of a configuration file suggests that
// it holds a key, a password, or settings that an administrator wrote.
func mayHoldSecret(name string) bool {
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

// etc writes the synthetic /etc.
func (t *hostTree) etc() error {
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
		"profile":       "PATH=/usr/local/bin:/usr/bin:/bin\nexport PATH\n",
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
	if err := t.alternatives(); err != nil {
		return err
	}
	return t.certificates()
}

// hostTreeNames are the directories of this machine that hostTrees mean.
func (m *machine) hostTreeNames() []string {
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

// copyFile copies one file of the machine, if it is there and public. A link
// into /usr stays a link, because /usr is there in the sandbox as well.
func (t *hostTree) copyFile(name string) error {
	if target, ok := t.linkIntoUsr(name); ok {
		return t.link(target, name)
	}
	if p, err := t.m.resolve(name); err == nil && p != name && !visible(p) {
		t.log.Warn("left out of the host image: it leads elsewhere", "file", name)
		return nil
	}
	return t.copyContent(name)
}

func (t *hostTree) copyContent(name string) error {
	b, err := t.m.read(name, maxHostFile)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			t.log.Warn("left out of the host image", "file", name, "error", err)
		}
		return nil
	}
	if strings.Contains(string(b), "PRIVATE KEY-----") {
		t.log.Warn("left out of the host image: it holds a private key", "file", name)
		return nil
	}
	if !t.fits(name, int64(len(b))) {
		return nil
	}
	return t.write(name, b)
}

// fits counts what is copied and reports whether it is still within bounds.
func (t *hostTree) fits(name string, n int64) bool {
	if t.copied+1 > maxHostFiles || t.size+n > maxHostBytes {
		t.log.Warn("left out of the host image: there is too much of it", "file", name)
		return false
	}
	t.copied, t.size = t.copied+1, t.size+n
	return true
}

// visible reports whether the sandbox sees a file of the machine, named without
// links, where the machine has it.
func visible(name string) bool {
	first, _, ok := strings.Cut(name, "/")
	return ok && (first == "usr" || slices.Contains(hostLinks(), first))
}

// linkIntoUsr returns the target of name if it is a link that ends in /usr, or
// in a /bin or /lib of its own where the machine still has these.
func (t *hostTree) linkIntoUsr(name string) (string, bool) {
	target, err := t.m.readlink(name)
	if err != nil {
		return "", false
	}
	p, err := t.m.resolve(name)
	if err != nil || !visible(p) {
		return "", false
	}
	// A relative target keeps its meaning only where name really is there.
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
		if mayHoldSecret(name) {
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

// copyLink copies a link that ends in /usr or beside itself, and no other.
func (t *hostTree) copyLink(name string) error {
	target, ok := t.linkIntoUsr(name)
	if !ok {
		beside, err := t.m.readlink(name)
		if err != nil || strings.Contains(beside, "/") || mayHoldSecret(beside) {
			return nil
		}
		target = beside
	}
	if !t.fits(name, 0) {
		return nil
	}
	return t.link(target, name)
}

// alternatives copies the links by which awk, java and others are chosen.
func (t *hostTree) alternatives() error {
	const dir = "etc/alternatives"
	for _, e := range t.m.list(dir) {
		if e.Type() != fs.ModeSymlink {
			continue
		}
		name := path.Join(dir, e.Name())
		target, ok := t.linkIntoUsr(name)
		// Most of them are of manual pages, which nobody reads in a sandbox.
		if !ok || strings.Contains(target, "/man/") || !t.fits(name, 0) {
			continue
		}
		if err := t.link(target, name); err != nil {
			return err
		}
	}
	return nil
}
