package workspace

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/brig-run/brig"
)

// entry is one line of a manifest.
type entry struct {
	brig.Node
	digest string // hex SHA-256 of a regular file's content
}

// isEqualContent reports whether two entries are equal except for their
// modification times.
func (e *entry) isEqualContent(o *entry) bool {
	return e.Type == o.Type && e.Mode == o.Mode && e.Size == o.Size && e.Target == o.Target && e.digest == o.digest
}

// manifest maps the paths of a version to its entries.
type manifest map[string]*entry

// paths returns the paths in byte order: parents come before their children.
func (m manifest) paths() []string {
	out := make([]string, 0, len(m))
	for p := range m {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// size returns the number of files and the sum of their sizes.
func (m manifest) size() (files int, bytes int64) {
	for _, e := range m {
		if e.Type == brig.RegularFile {
			files++
			bytes += e.Size
		}
	}
	return files, bytes
}

// names returns the bytes of all paths and targets.
func (m manifest) names() (n int64) {
	for p, e := range m {
		n += int64(len(p) + len(e.Target))
	}
	return n
}

// digest returns the digest of all names, modes and contents.
func (m manifest) digest() string {
	d := newTreeDigest()
	for _, p := range m.paths() {
		d.add(m[p])
	}
	return d.sum()
}

// treeDigest computes the digest of a tree from its entries in the order of
// their paths.
type treeDigest struct {
	hash hash.Hash
	w    *bufio.Writer
}

func newTreeDigest() *treeDigest {
	h := sha256.New()
	return &treeDigest{h, bufio.NewWriter(h)}
}

func (d *treeDigest) add(e *entry) {
	fmt.Fprintf(d.w, "%d %s %s %o %d %s %d %s\n", len(e.Path), e.Path, e.Type, e.Mode, e.Size, e.digest, len(e.Target), e.Target)
}

func (d *treeDigest) sum() string {
	_ = d.w.Flush() // writing to a hash never fails
	return "sha256:" + hex.EncodeToString(d.hash.Sum(nil))
}

// manifestLine is the stored form of an entry. Text that is not valid UTF-8 is stored
// in base64.
type manifestLine struct {
	Path      string `json:"path,omitempty"`
	PathB64   []byte `json:"path_b64,omitempty"`
	Type      string `json:"type"`
	Mode      uint32 `json:"mode"`
	Size      int64  `json:"size,omitempty"`
	Modified  int64  `json:"modified_ns,omitempty"`
	Digest    string `json:"sha256,omitempty"`
	Target    string `json:"target,omitempty"`
	TargetB64 []byte `json:"target_b64,omitempty"`
}

func encodeText(s string) (string, []byte) {
	if utf8.ValidString(s) {
		return s, nil
	}
	return "", []byte(s)
}

// maxManifest is the maximum size of a stored manifest, in bytes.
const maxManifest = 128 << 20

// encode writes the stored form of a manifest, one line of JSON per entry, and
// returns its size. Callers do not keep the stored form in memory, because JSON may
// take six bytes for each byte of a name.
func (m manifest) encode(w io.Writer) (size int64, err error) {
	out := &countingWriter{w: w}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for _, p := range m.paths() {
		e := m[p]
		l := manifestLine{Type: string(e.Type), Mode: e.Mode, Size: e.Size, Digest: e.digest}
		l.Path, l.PathB64 = encodeText(p)
		l.Target, l.TargetB64 = encodeText(e.Target)
		if e.Type == brig.RegularFile {
			l.Modified = e.Modified.UnixNano()
		}
		if err := enc.Encode(l); err != nil {
			return out.n, err
		}
		if out.n > maxManifest {
			return out.n, namesError()
		}
	}
	return out.n, nil
}

// countingWriter counts the bytes that are written to w.
type countingWriter struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// decodeManifest parses an untrusted manifest.
func decodeManifest(b []byte) (manifest, error) {
	m := manifest{}
	if err := scanEntries(bytes.NewReader(b), m.add); err != nil {
		return nil, err
	}
	return m, m.check()
}

// add adds an entry of an untrusted manifest.
func (m manifest) add(e *entry) error {
	if m[e.Path] != nil {
		return fmt.Errorf("manifest: %.100q is there twice", e.Path)
	}
	m[e.Path] = e
	return nil
}

// maxPath is the maximum length of a path or a link's target, in bytes.
const maxPath = 4096

// check returns an error if the manifest is not a valid tree. It rejects paths
// that lead out of the tree or through files, and values that a commit never
// writes.
func (m manifest) check() error {
	if len(m) > brig.MaxWorkspaceFiles {
		return fmt.Errorf("manifest: %d entries", len(m))
	}
	total := int64(0)
	for p, e := range m {
		if above := path.Dir(p); above != "." && (m[above] == nil || m[above].Type != brig.Directory) {
			return fmt.Errorf("manifest: %.100q is in no directory", p)
		}
		if err := e.check(); err != nil {
			return fmt.Errorf("manifest: %.100q: %w", p, err)
		}
		if total += e.Size; total > brig.MaxWorkspaceSize {
			return errors.New("manifest: it is too large")
		}
	}
	return nil
}

func (e *entry) check() error {
	file := e.Type == brig.RegularFile
	link := e.Type == brig.Symlink
	switch {
	case !isLocalPath(e.Path):
		return errors.New("it is no path in a workspace")
	case !file && !link && e.Type != brig.Directory:
		return fmt.Errorf("unknown type %.20q", e.Type)
	case e.Mode > 0o777, e.Size < 0, e.Size > brig.MaxWorkspaceFile, !file && e.Size != 0:
		return errors.New("bad mode or size")
	case file != (e.digest != ""), file && !isDigest(e.digest):
		return errors.New("bad digest")
	case link != (e.Target != ""), len(e.Target) > maxPath, strings.ContainsRune(e.Target, 0):
		return errors.New("bad target")
	}
	return nil
}

// isLocalPath reports whether a path is strictly below the root of the tree.
func isLocalPath(p string) bool {
	return p != "." && len(p) <= maxPath && path.Clean(p) == p && filepath.IsLocal(p) && !strings.ContainsRune(p, 0)
}

func isDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
