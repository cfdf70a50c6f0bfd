package image

import (
	"bytes"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

// keptSources are the package sources that a built image keeps, so that programs in its sandboxes can
// install packages of the same archives. Other archives may have only older versions of the packages on
// which the image's own depend.
type keptSources struct {
	text     string            // in apt's format of stanzas
	keyrings map[string][]byte // by name, relative to the root
}

// keptSourcesFile is the file of the sources in an image.
const keptSourcesFile = "etc/apt/sources.list.d/debian.sources"

// maxKeyring is the largest keyring that is copied.
const maxKeyring = 1 << 20

// keep returns the sources that an image keeps. Untrusted programs read them, so they contain no
// credentials: a source that needs some, or a file of the host, is left out.
func (p *packageSources) keep(m *hostFS) keptSources {
	k := keptSources{keyrings: map[string][]byte{}}
	var kept packageSources
	for _, src := range p.sources {
		src.uris = slices.DeleteFunc(slices.Clone(src.uris), func(uri string) bool { return !isPublicURI(uri) })
		if len(src.uris) > 0 && k.addKeyrings(m, src.signedBy) {
			kept.sources = append(kept.sources, src)
		}
	}
	k.text = kept.String()
	return k
}

// isPublicURI reports whether a sandbox can use the URI of a source, which has no user and no password.
func isPublicURI(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		!strings.ContainsAny(uri, "@?#") && !slices.ContainsFunc(strings.Split(u.Path, "/"), isToken)
}

// isToken reports whether a part of a path can be a credential, as private repositories have it in
// their paths: it is long, and has letters and digits.
func isToken(part string) bool {
	const digits = "0123456789"
	return len(part) >= 12 && strings.ContainsAny(part, digits) && strings.Trim(part, digits) != ""
}

// addKeyrings adds the keyrings that the field Signed-By of a source names. It reports false if the image
// cannot have one of them. Fingerprints and a key in the field itself need no file.
func (k *keptSources) addKeyrings(m *hostFS, signedBy string) bool {
	if !strings.HasPrefix(signedBy, "/") {
		return true
	}
	names := strings.FieldsFunc(signedBy, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
	for _, name := range names {
		if !strings.HasPrefix(name, "/") { // a fingerprint
			continue
		}
		name = path.Clean(name)[1:]
		dir := path.Dir(name)
		if dir != "usr/share/keyrings" && dir != "etc/apt/keyrings" && dir != "etc/apt/trusted.gpg.d" {
			return false
		}
		b, err := m.read(name, maxKeyring)
		if err != nil || bytes.Contains(b, []byte("PRIVATE KEY")) {
			return false
		}
		k.keyrings[name] = b
	}
	return true
}

// write writes the sources into an image. It keeps the image's own keyrings.
func (k *keptSources) write(f *finisher) error {
	if k.text == "" {
		return nil
	}
	for name, content := range k.keyrings {
		if exists(f.root, name) {
			continue
		}
		if err := f.root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return fmt.Errorf("make the folder of %s: %w", name, err)
		}
		if err := f.write(name, content); err != nil {
			return err
		}
	}
	return f.write(keptSourcesFile, []byte(k.text))
}
